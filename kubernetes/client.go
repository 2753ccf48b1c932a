package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/forge-scheduler/forge/internal/netguard"
)

// client reads and writes Leases of one namespace. It is client-go's REST client with these
// objects alone: the generated client of all objects would make the program half as large again.
type client struct {
	namespace string
	rest      rest.Interface
}

// requestTimeout bounds each request, and also both of a step: an answer later than a lease is
// of no use, and a process that ends does not wait longer for it.
func requestTimeout(lease time.Duration) time.Duration { return min(lease, 10*time.Second) }

// databaseAnnotation holds the DatabaseID of the holder's cluster.
const databaseAnnotation = "forge-scheduler/database"

// maxAnswer bounds an answer of the API server, in bytes. A Lease has about 1 kB.
const maxAnswer = 1 << 20

// newClient returns a client for the API server and the namespace of the files that kubeconfig
// lists, or of the pod if it is empty. It sends nothing. timeout bounds each request.
func newClient(kubeconfig string, timeout time.Duration) (*client, error) {
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(kubeconfig)}
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	config, err := loaded.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no API server of Kubernetes is known; want a pod with the token of a service account, or KUBECONFIG")
	case err != nil:
		return nil, fmt.Errorf("find Kubernetes' API server: %w", err)
	}
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return nil, fmt.Errorf("find the namespace of the Leases: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := coordination.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, coordination.SchemeGroupVersion)
	config.Timeout, config.QPS = timeout, -1 // each role has its own interval
	config.APIPath, config.GroupVersion = "/apis", &coordination.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.UserAgent = "forge"
	config.Wrap(func(transport http.RoundTripper) http.RoundTripper {
		return netguard.LimitAnswers(transport, maxAnswer)
	})
	requests, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to Kubernetes' API server: %w", err)
	}
	return &client{namespace, requests}, nil
}

// leaseName is the name of a role's Lease. The names of roles may have underlines, also at the end.
func leaseName(cluster, role string) string {
	return cluster + "-" + strings.ReplaceAll(role, "_", "-") + "-leader"
}

// holder returns the identity in a Lease, empty if there is no such Lease or if it is free, and the
// database of its cluster, empty if that is not known.
func (c *client) holder(ctx context.Context, name string) (holder, database string, err error) {
	lease, err := c.get(ctx, name)
	if apierrors.IsNotFound(err) {
		return "", "", nil
	}
	return holderOf(lease), lease.Annotations[databaseAnnotation], explain("read", c.namespace, name, err)
}

func (c *client) get(ctx context.Context, name string) (*coordination.Lease, error) {
	var lease coordination.Lease
	err := c.rest.Get().Namespace(c.namespace).Resource("leases").Name(name).Do(ctx).Into(&lease)
	return &lease, err
}

// write creates a Lease that has no resource version, and reads it as it was stored. It returns an
// error if somebody else has written it since it was read.
func (c *client) write(ctx context.Context, lease *coordination.Lease) error {
	request := c.rest.Put().Name(lease.Name)
	if lease.ResourceVersion == "" {
		request = c.rest.Post()
	}
	return request.Namespace(c.namespace).Resource("leases").Body(lease).Do(ctx).Into(lease)
}

// explain names the rule that is missing.
func explain(verb, namespace, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s the Lease %s/%s: %w; give the service account a Role with the verbs get, create and update for leases of coordination.k8s.io", verb, namespace, name, err)
	default:
		return fmt.Errorf("%s the Lease %s/%s: %w", verb, namespace, name, err)
	}
}

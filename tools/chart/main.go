// Command chart checks forge's Helm chart, a directory or a package, as Helm and Kubernetes
// read it: it lints the chart, renders it with different values, and reads the result strictly
// into Kubernetes' own types.
//
//	go -C tools/chart run . ../../deploy/helm/forge
//
// With -print it prints the objects of each variant instead, as a JSON list of YAML documents.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// kubernetes is the oldest version that the chart is for.
const kubernetes = "v1.30.0"

func main() {
	printing := flag.Bool("print", false, "print the objects")
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: chart [-print] DIR|FILE.tgz") }
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	run := check
	if *printing {
		run = printObjects
	}
	if err := run(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// variants are values with which the chart is rendered.
var variants = map[string]string{
	"the defaults": "",
	"everything": `
image: { digest: "sha256:` + strings.Repeat("0", 64) + `" }
imagePullSecrets: [{ name: registry }]
existingConfigMap: own
allowedHosts: [forge.example.com]
env: [{ name: TOKEN, value: x }]
envFrom: [{ secretRef: { name: jobs } }]
volumes: [{ name: data, emptyDir: {} }]
volumeMounts: [{ name: data, mountPath: /data }]
service: { annotations: { a: b } }
serviceAccount: { name: jobs, automountToken: true }
serviceMonitor: { enabled: true, labels: { release: prometheus } }
networkPolicy:
  enabled: true
  from: [{ namespaceSelector: { matchLabels: { team: ops } } }]
  egress: [{ to: [{ ipBlock: { cidr: 10.0.0.5/32 } }], ports: [{ port: 5432 }] }]
podAnnotations: { a: b }
podLabels: { team: ops }
nodeSelector: { disk: fast }
tolerations: [{ key: dedicated, operator: Exists }]
affinity: { nodeAffinity: {} }
priorityClassName: high
drainTimeoutSeconds: 3600
`,
	"leases":  "leases: { enabled: true }\n",
	"nothing": "preStopSeconds: 0\npodDisruptionBudget: { enabled: false }\nconfig: ''\n",
}

func check(chart string) error {
	if strings.HasSuffix(chart, ".tgz") {
		dir, err := os.MkdirTemp("", "chart-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if err := chartutil.ExpandFile(dir, chart); err != nil {
			return err
		}
		chart = filepath.Join(dir, "forge")
	}
	wrong := []error{checkFiles(chart)}
	for name, values := range variants {
		if _, err := render(chart, values); err != nil {
			wrong = append(wrong, fmt.Errorf("with %s: %w", name, err))
		}
	}
	return errors.Join(wrong...)
}

// printObjects prints what the chart in a directory renders with each of the variants.
func printObjects(dir string) error {
	var all []string
	for name, values := range variants {
		files, err := renderFiles(dir, values)
		if err != nil {
			return fmt.Errorf("with %s: %w", name, err)
		}
		all = append(all, slices.Sorted(maps.Values(files))...)
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

// checkFiles returns what Helm's lint finds.
func checkFiles(chart string) error {
	found := lint.AllWithKubeVersion(chart, nil, "default", &chartutil.KubeVersion{Version: kubernetes, Major: "1", Minor: "30"})
	var wrong []error
	for _, message := range found.Messages {
		if message.Severity >= support.WarningSev {
			wrong = append(wrong, message)
		}
	}
	return errors.Join(wrong...)
}

// objects are what the chart consists of, by kind. ServiceMonitor has its types elsewhere.
type objects struct {
	ConfigMap           *corev1.ConfigMap
	Deployment          *appsv1.Deployment
	Service             *corev1.Service
	PodDisruptionBudget *policyv1.PodDisruptionBudget
	NetworkPolicy       *networkingv1.NetworkPolicy
	ServiceAccount      *corev1.ServiceAccount
	Role                *rbacv1.Role
	RoleBinding         *rbacv1.RoleBinding
	ServiceMonitor      *serviceMonitor
}

// serviceMonitor is the part of the Prometheus operator's type that the chart uses.
type serviceMonitor struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       struct {
		Selector  struct{ MatchLabels map[string]string }
		Endpoints []struct {
			Port, Path, Interval string
			Authorization        struct{ Credentials struct{ Name, Key string } }
		}
	} `json:"spec"`
}

// render returns the objects of the chart with the given values.
func render(dir, values string) (*objects, error) {
	files, err := renderFiles(dir, values)
	if err != nil {
		return nil, err
	}
	found := &objects{}
	for name, text := range files {
		if err := found.read(text); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return found, nil
}

// renderFiles returns the text of each object by the name of its file.
func renderFiles(dir, values string) (map[string]string, error) {
	chart, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: kubernetes, Major: "1", Minor: "30"}
	if !chartutil.IsCompatibleRange(chart.Metadata.KubeVersion, kubernetes) {
		return nil, fmt.Errorf("the chart is not for Kubernetes %s", kubernetes)
	}
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: "forge", Namespace: "jobs", IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(files, func(name, text string) bool { return path.Ext(name) != ".yaml" || strings.TrimSpace(text) == "" })
	return files, nil
}

func (o *objects) read(text string) error {
	var head struct{ Kind string }
	if err := yaml.Unmarshal([]byte(text), &head); err != nil {
		return err
	}
	var to any
	switch head.Kind {
	case "ConfigMap":
		to = fresh(&o.ConfigMap)
	case "Deployment":
		to = fresh(&o.Deployment)
	case "Service":
		to = fresh(&o.Service)
	case "PodDisruptionBudget":
		to = fresh(&o.PodDisruptionBudget)
	case "NetworkPolicy":
		to = fresh(&o.NetworkPolicy)
	case "ServiceAccount":
		to = fresh(&o.ServiceAccount)
	case "Role":
		to = fresh(&o.Role)
	case "RoleBinding":
		to = fresh(&o.RoleBinding)
	case "ServiceMonitor":
		to = fresh(&o.ServiceMonitor)
	default:
		return fmt.Errorf("unknown kind %q", head.Kind)
	}
	return yaml.UnmarshalStrict([]byte(text), to)
}

// fresh sets a field to a new object, and returns it.
func fresh[T any](field **T) any {
	*field = new(T)
	return *field
}

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const chart = "../../deploy/helm/forge"

func TestChart(t *testing.T) {
	t.Parallel()
	if err := check(chart); err != nil {
		t.Error(err)
	}
}

func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, old, new, want string }{
		"a key that Kubernetes does not have": {"templates/deployment.yaml", "      containers:", "      contaners:", `unknown field "contaners"`},
		"a value of another type":             {"templates/service.yaml", "port: {{ .Values.service.port }}", "port: http", "cannot unmarshal"},
		"a template that fails":               {"templates/service.yaml", ".Values.service.port", ".Values.service.none.port", "nil pointer"},
		"a default that its schema rejects":   {"values.yaml", "replicas: 3", "replicas: many", "replicas"},
		"a version that is none":              {"Chart.yaml", "version: 0.0.0", "version: latest", "version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "forge")
			if err := os.CopyFS(dir, os.DirFS(chart)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, c.file)
			text, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), c.old) {
				t.Fatalf("%s has no %q: %v", c.file, c.old, err)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := check(dir); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// The pods are those of deploy/kubernetes/forge.yaml, which other tests check against forge.
func TestPodsAreThoseOfTheManifest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/kubernetes/forge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var manifest appsv1.Deployment
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.Contains(document, "\nkind: Deployment\n") {
			if err := yaml.UnmarshalStrict([]byte(document), &manifest); err != nil {
				t.Fatal(err)
			}
		}
	}
	rendered := rendered(t, "")
	a, b := rendered.Deployment.Spec.Template.Spec, manifest.Spec.Template.Spec
	for name, pair := range map[string][2]any{
		"arguments": {a.Containers[0].Args, b.Containers[0].Args}, "ports": {a.Containers[0].Ports, b.Containers[0].Ports},
		"start-up probe": {a.Containers[0].StartupProbe, b.Containers[0].StartupProbe},
		"liveness":       {a.Containers[0].LivenessProbe, b.Containers[0].LivenessProbe},
		"readiness":      {a.Containers[0].ReadinessProbe, b.Containers[0].ReadinessProbe},
		"rights":         {a.Containers[0].SecurityContext, b.Containers[0].SecurityContext},
		"rights of pods": {a.SecurityContext, b.SecurityContext}, "strategy": {rendered.Deployment.Spec.Strategy, manifest.Spec.Strategy},
		"mounts": {a.Containers[0].VolumeMounts, b.Containers[0].VolumeMounts}, "resources": {a.Containers[0].Resources, b.Containers[0].Resources},
		"tokens": {a.AutomountServiceAccountToken, b.AutomountServiceAccountToken}, "replicas": {rendered.Deployment.Spec.Replicas, manifest.Spec.Replicas},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: the chart has %+v, the manifest %+v", name, pair[0], pair[1])
		}
	}
}

func rendered(t *testing.T, values string) *objects {
	t.Helper()
	found, err := render(chart, values)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// With leases, the pods may use the Leases that the nodes need, by an account of their own or by one
// that exists.
func TestLeases(t *testing.T) {
	t.Parallel()
	for values, account := range map[string]string{
		variants["leases"]: "forge", "leases: { enabled: true }\nserviceAccount: { name: jobs }\n": "jobs",
	} {
		o := rendered(t, values)
		pod := o.Deployment.Spec.Template.Spec
		if pod.ServiceAccountName != account || !*pod.AutomountServiceAccountToken {
			t.Errorf("account %q, its token mounted: %v; want %q", pod.ServiceAccountName, *pod.AutomountServiceAccountToken, account)
		}
		if made := o.ServiceAccount != nil; made != (account == "forge") {
			t.Errorf("account %s was made: %v", account, made)
		}
		if len(o.RoleBinding.Subjects) != 1 || o.RoleBinding.Subjects[0].Name != account || o.RoleBinding.RoleRef.Name != o.Role.Name {
			t.Errorf("%+v binds %+v", o.RoleBinding, o.Role)
		}
		want := []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}}}
		if !reflect.DeepEqual(o.Role.Rules, want) {
			t.Errorf("rules: %+v", o.Role.Rules)
		}
		if !slices.Contains(pod.Containers[0].Env, corev1.EnvVar{Name: "FORGE_CLUSTER_LEADER_ELECTION_STRATEGY", Value: "kubernetes"}) {
			t.Errorf("environment: %+v", pod.Containers[0].Env)
		}
	}
	if o := rendered(t, ""); o.Role != nil || o.RoleBinding != nil || o.ServiceAccount != nil || *o.Deployment.Spec.Template.Spec.AutomountServiceAccountToken {
		t.Error("without leases, the pods have rights in Kubernetes")
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	o := rendered(t, variants["everything"])
	pod := o.Deployment.Spec.Template.Spec
	container := pod.Containers[0]
	env := map[string]corev1.EnvVar{}
	for _, variable := range container.Env {
		env[variable.Name] = variable
	}
	if got := env["FORGE_NODE_DRAIN_TIMEOUT"].Value; got != "3600s" || *pod.TerminationGracePeriodSeconds != 3600+5+15 || container.Lifecycle.PreStop.Sleep.Seconds != 5 {
		t.Errorf("a drain of %s, a grace of %d s, a pause of %+v", got, *pod.TerminationGracePeriodSeconds, container.Lifecycle.PreStop)
	}
	if got := env["FORGE_HTTP_ALLOWED_HOSTS"].Value; got != "forge,forge.jobs,forge.jobs.svc,forge.jobs.svc.cluster.local,forge.example.com" {
		t.Errorf("allowed hosts: %s", got)
	}
	if key := env["FORGE_DATABASE_URL"].ValueFrom.SecretKeyRef; key.Name != "forge-database" || key.Key != "url" {
		t.Errorf("address: %+v", key)
	}
	if o.ConfigMap != nil || pod.Volumes[0].ConfigMap.Name != "own" {
		t.Errorf("configuration: %+v, mounted %+v", o.ConfigMap, pod.Volumes[0])
	}
	if !strings.HasSuffix(container.Image, "@sha256:"+strings.Repeat("0", 64)) || env["TOKEN"].Value != "x" || len(container.VolumeMounts) != 3 {
		t.Errorf("container: %+v", container)
	}
	endpoint := o.ServiceMonitor.Spec.Endpoints[0]
	if endpoint.Path != "/metrics" || endpoint.Port != o.Service.Spec.Ports[0].Name || endpoint.Authorization.Credentials.Name != "forge-prometheus" ||
		!reflect.DeepEqual(o.ServiceMonitor.Spec.Selector.MatchLabels, o.Service.Spec.Selector) {
		t.Errorf("monitor: %+v", o.ServiceMonitor.Spec)
	}
	policy := o.NetworkPolicy.Spec
	if len(policy.PolicyTypes) != 2 || policy.Ingress[0].From[0].NamespaceSelector == nil || policy.Ingress[0].Ports[0].Port.StrVal != o.Service.Spec.Ports[0].TargetPort.StrVal {
		t.Errorf("network policy: %+v", policy)
	}
	if dns, own := policy.Egress[0], policy.Egress[1]; len(dns.Ports) != 2 || dns.Ports[0].Port.IntVal != 53 || own.To[0].IPBlock.CIDR != "10.0.0.5/32" {
		t.Errorf("ways out: %+v", policy.Egress)
	}
	open := rendered(t, "networkPolicy: { enabled: true }").NetworkPolicy.Spec
	if len(open.PolicyTypes) != 1 || open.Ingress[0].From != nil || open.Egress != nil {
		t.Errorf("network policy without rules: %+v", open)
	}
	for selector, labels := range map[*map[string]string]map[string]string{
		&o.Service.Spec.Selector: o.Deployment.Spec.Template.Labels, &o.Deployment.Spec.Selector.MatchLabels: o.Deployment.Spec.Template.Labels,
		&o.PodDisruptionBudget.Spec.Selector.MatchLabels: o.Deployment.Spec.Template.Labels,
		&o.NetworkPolicy.Spec.PodSelector.MatchLabels:    o.Deployment.Spec.Template.Labels, &o.ServiceMonitor.Spec.Selector.MatchLabels: o.Service.Labels,
	} {
		for name, value := range *selector {
			if labels[name] != value {
				t.Errorf("a selector wants %s=%s among %v", name, value, labels)
			}
		}
	}
	if o := rendered(t, variants["nothing"]); o.PodDisruptionBudget != nil || o.ServiceMonitor != nil || o.NetworkPolicy != nil || o.Deployment.Spec.Template.Spec.Containers[0].Lifecycle != nil {
		t.Errorf("with nothing: %+v", o)
	}
}

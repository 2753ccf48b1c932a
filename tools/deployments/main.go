// Command deployments reads the files in deploy/ as those do that they are for: the
// compose file with Compose's own loader, the manifest into Kubernetes' own types. It
// finds what is misspelt, misplaced or of the wrong type.
//
//	go run ./deployments ../deploy
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: deployments DIR")
		os.Exit(2)
	}
	if err := errors.Join(checkCompose(os.Args[1]), checkManifests(os.Args[1])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func checkCompose(dir string) error {
	path := filepath.Join(dir, "docker", "compose.yml")
	options, err := cli.NewProjectOptions([]string{path}, cli.WithEnv([]string{"POSTGRES_PASSWORD=any"}))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if _, err := options.LoadProject(context.Background()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// objects are what a document of the manifest may be.
var objects = map[string]func() any{
	"v1 Pod":                        func() any { return &corev1.Pod{} },
	"v1 ConfigMap":                  func() any { return &corev1.ConfigMap{} },
	"v1 Service":                    func() any { return &corev1.Service{} },
	"apps/v1 Deployment":            func() any { return &appsv1.Deployment{} },
	"policy/v1 PodDisruptionBudget": func() any { return &policyv1.PodDisruptionBudget{} },
}

func checkManifests(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "kubernetes", "*.yaml"))
	if err != nil || len(paths) == 0 {
		return errors.Join(err, errors.New("no manifests in "+dir))
	}
	var wrong []error
	for _, path := range paths {
		wrong = append(wrong, checkManifest(path))
	}
	return errors.Join(wrong...)
}

func checkManifest(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var wrong []error
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if err := checkObject([]byte(document)); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", path, err))
		}
	}
	return errors.Join(wrong...)
}

func checkObject(document []byte) error {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(document, &head); err != nil {
		return err
	}
	kind := head.APIVersion + " " + head.Kind
	object, ok := objects[kind]
	if !ok {
		return fmt.Errorf("%s is no kind that is known here", kind)
	}
	if err := yaml.UnmarshalStrict(document, object()); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

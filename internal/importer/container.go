package importer

import (
	"path"
	"slices"
	"strings"
)

// container reads the command of the pod's first container.
func (r *cronJobReader) container(pod value) {
	containers := pod.get("containers").list()
	if len(containers) == 0 {
		r.refuse(pod.or(r.spec), "no container", "", "spec.jobTemplate.spec.template.spec.containers with a command")
		return
	}
	e, first := r.entry, containers[0]
	if n := len(containers); n > 1 {
		e.note("only the first of %d containers is kept", n)
	}
	unknown := r.environment(first.get("env").list())
	command := first.get("command").list()
	for _, part := range slices.Concat(command, first.get("args").list()) {
		e.Work.Command = append(e.Work.Command, r.expand(part.text()))
	}
	words := strings.Join(e.Work.Command, " ")
	for _, name := range unknown {
		if strings.Contains(words, "$("+name+")") {
			e.Cron.Paused = true
			e.note("paused: only Kubernetes replaces $(%s) in the command; let a shell read the variable, and remove paused", name)
		}
	}
	image := first.get("image").text()
	if len(command) == 0 {
		e.Cron.Paused = true
		e.Work.Command = append([]string{"ENTRYPOINT"}, e.Work.Command...)
		e.note("paused: the manifest has no command, and the entrypoint of %s runs; put it in place of ENTRYPOINT and remove paused", image)
	} else {
		e.note("the program comes from the image %s", image)
		if program := e.Work.Command[0]; strings.Contains(program, "/") && !path.IsAbs(program) {
			r.refuse(first.get("command"), "a path relative to the image's directory", program, "an absolute path")
		}
	}
	if dir := first.get("workingDir").text(); dir != "" {
		e.Work.Cwd = dir
	}
	r.dropped("the container", first, "name", "image", "command", "args", "env", "workingDir", "imagePullPolicy",
		"terminationMessagePath", "terminationMessagePolicy")
}

// environment reads the variables, and returns the names of those whose values are elsewhere.
func (r *cronJobReader) environment(variables []value) (unknown []string) {
	e := r.entry
	e.Work.Env = map[string]string{}
	for _, variable := range variables {
		name := variable.get("name").text()
		if from := variable.get("valueFrom"); from.Node != nil {
			e.note(`env %s comes from %s: set it to "${env:NAME}" or "${file:PATH}"`, name, source(from))
			unknown = append(unknown, name)
			continue
		}
		text := r.expand(variable.get("value").text())
		if reason := variableProblem(name, text); reason != "" {
			e.note("env %s is not kept: %s", name, reason)
			continue
		}
		e.Work.Env[name] = text
	}
	return unknown
}

// source names where the value of a variable comes from.
func source(from value) string {
	for kind, ref := range from.pairs() {
		switch kind {
		case "secretKeyRef":
			return "key " + ref.get("key").text() + " of the Secret " + ref.get("name").text()
		case "configMapKeyRef":
			return "key " + ref.get("key").text() + " of the ConfigMap " + ref.get("name").text()
		default:
			return kind
		}
	}
	return "elsewhere"
}

// expand replaces $(NAME) by the variable, as Kubernetes does; $$ stands for $. A name without a
// known value stays.
func (r *cronJobReader) expand(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		switch known, ok := r.entry.Work.Env[name]; {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			text = after[1:]
		case strings.HasPrefix(after, "(") && closed && ok:
			b.WriteString(known)
			text = rest
		default:
			b.WriteByte('$')
			text = after
		}
	}
}

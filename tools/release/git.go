package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// semantic matches a tag of a release, as Semantic Versioning wants it.
var semantic = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// fromGit returns the release of the checked out commit. Its version is the commit's tag. A commit
// without a tag gets the pseudo-version that the go command gives the first commits of a module.
func fromGit(ctx context.Context, root string) (*release, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	changed, err := output(ctx, root, "git", "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if changed != "" {
		return nil, fmt.Errorf("the work tree has changes, and a release is built from a commit:\n%s", changed)
	}
	commit, err := output(ctx, root, "git", "rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	seconds, err := output(ctx, root, "git", "show", "-s", "--format=%ct")
	if err != nil {
		return nil, err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, err
	}
	tags, err := output(ctx, root, "git", "tag", "--points-at", "HEAD", "--sort=-version:refname")
	if err != nil {
		return nil, err
	}
	r := &release{root: root, commit: commit, at: time.Unix(unix, 0).UTC()}
	r.version = versionOf(strings.Fields(tags), commit, r.at)
	return r, nil
}

// versionOf returns the highest version among tags, which are sorted, without its v.
func versionOf(tags []string, commit string, at time.Time) string {
	for _, tag := range tags {
		if semantic.MatchString(tag) {
			return tag[1:]
		}
	}
	return "0.0.0-" + at.Format("20060102150405") + "-" + commit[:12]
}

// output returns what a program prints, without the white space around it.
func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	return strings.TrimSpace(string(out)), nil
}

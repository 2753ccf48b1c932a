package devcluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// The supported major versions.
const (
	oldestMajor = 14
	newestMajor = 18
)

// programs are PostgreSQL's programs, in one directory.
type programs struct {
	dir     string
	version string
	major   int
}

func (p programs) path(name string) string { return filepath.Join(p.dir, name) }

// installedIn are the directories where packages install PostgreSQL's programs: Debian,
// Red Hat, Homebrew (Apple silicon, Intel, Linux) and Postgres.app.
var installedIn = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/lib/postgresql*/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/usr/local/pgsql/bin",
}

// findPrograms chooses the programs to run: the given ones, or the newest installed ones
// that fit the data (major, 0 when there is none yet), or downloaded ones.
func findPrograms(ctx context.Context, req request, major int, say func(string)) (programs, error) {
	if req.BinDir != "" {
		named, err := inspect(ctx, req.BinDir)
		if err != nil {
			return programs{}, err
		}
		return newest([]programs{named}, major)
	}
	found := candidates(ctx, req.CacheDir)
	chosen, err := newest(found, major)
	if err == nil || major != 0 && major != newestMajor {
		return chosen, err
	}
	downloaded, downloadErr := download(ctx, req.CacheDir, req.RepositoryURL, say)
	if downloadErr != nil {
		return programs{}, fmt.Errorf("%w, and the download failed: %w; %s", err, downloadErr, installHint())
	}
	return downloaded, nil
}

// errNoPrograms reports that no installed version is supported.
var errNoPrograms = fmt.Errorf("no PostgreSQL %d to %d is installed", oldestMajor, newestMajor)

// newest returns the newest of found; if there is data, only its own major version is
// accepted.
func newest(found []programs, major int) (programs, error) {
	var best programs
	var unfit []string
	for _, p := range found {
		if p.major < oldestMajor || p.major > newestMajor || major != 0 && p.major != major {
			unfit = append(unfit, p.version+" in "+p.dir)
			continue
		}
		if p.major > best.major {
			best = p
		}
	}
	switch {
	case best.major != 0:
		return best, nil
	case major != 0:
		return programs{}, fmt.Errorf("the data was made by PostgreSQL %d, and %s is here: install PostgreSQL %d or choose another data directory (this one is left as it is)",
			major, only(unfit), major)
	case len(unfit) > 0:
		return programs{}, fmt.Errorf("%w (found %s)", errNoPrograms, strings.Join(unfit, ", "))
	default:
		return programs{}, errNoPrograms
	}
}

func only(versions []string) string {
	if len(versions) == 0 {
		return "no program of it"
	}
	return "only " + strings.Join(versions, ", ")
}

// candidates returns the installed programs and the downloaded ones, each directory once.
func candidates(ctx context.Context, cacheDir string) []programs {
	var dirs []string
	for _, pattern := range installedIn {
		matches, err := filepath.Glob(pattern)
		if err == nil {
			dirs = append(dirs, matches...)
		}
	}
	dirs = append(dirs, onPath(ctx)...)
	if cacheDir != "" {
		dirs = append(dirs, filepath.Join(cachedPrograms(cacheDir), "bin"))
	}
	var found []programs
	seen := map[string]bool{}
	for _, dir := range dirs {
		if target, err := filepath.EvalSymlinks(dir); err == nil && !seen[target] {
			seen[target] = true
			if p, err := inspect(ctx, dir); err == nil {
				found = append(found, p)
			}
		}
	}
	return found
}

// onPath searches PATH for the server itself, and for pg_config, which prints the
// directory of a package's programs.
func onPath(ctx context.Context) []string {
	var dirs []string
	if server, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(server))
	}
	if config, err := exec.LookPath("pg_config"); err == nil {
		if dir, err := exec.CommandContext(ctx, config, "--bindir").Output(); err == nil {
			dirs = append(dirs, strings.TrimSpace(string(dir)))
		}
	}
	return dirs
}

var versionPattern = regexp.MustCompile(`PostgreSQL\) ((\d+)\S*)`)

// inspect runs the programs in dir to read their version.
func inspect(ctx context.Context, dir string) (programs, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return programs{}, fmt.Errorf("find PostgreSQL's programs: %w", err)
	}
	server := filepath.Join(dir, "postgres")
	output, err := exec.CommandContext(ctx, server, "--version").Output()
	if err != nil {
		return programs{}, fmt.Errorf("read the version of %s: %w", server, err)
	}
	match := versionPattern.FindStringSubmatch(string(output))
	if match == nil {
		return programs{}, fmt.Errorf("%s says %q, which is no version of PostgreSQL", server, strings.TrimSpace(string(output)))
	}
	major, err := strconv.Atoi(match[2])
	if err != nil {
		return programs{}, fmt.Errorf("read the version of %s: %w", server, err)
	}
	return programs{dir: dir, version: match[1], major: major}, nil
}

// installHint names the package for the installed package manager.
func installHint() string {
	hints := []struct{ manager, command string }{
		{"brew", "brew install postgresql@17"},
		{"apt-get", "apt-get install postgresql"},
		{"dnf", "dnf install postgresql-server"},
		{"yum", "yum install postgresql-server"},
		{"apk", "apk add postgresql"},
		{"pacman", "pacman -S postgresql"},
		{"zypper", "zypper install postgresql-server"},
	}
	for _, hint := range hints {
		if _, err := exec.LookPath(hint.manager); err == nil {
			return "install it with: " + hint.command
		}
	}
	if runtime.GOOS == "darwin" {
		return "install it: Postgres.app, or Homebrew's postgresql@17"
	}
	return fmt.Sprintf("install the server package of PostgreSQL %d to %d", oldestMajor, newestMajor)
}

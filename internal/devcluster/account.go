package devcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// account is the user that the server runs as; nil means the current user.
type account struct {
	name     string
	uid, gid uint32
}

func (a *account) String() string {
	if a == nil {
		return "as ourselves"
	}
	return "as user " + a.name
}

// prepareDir creates dir and returns the account to run the server as: the current user,
// or under root an unprivileged account, which then owns dir. Existing data keeps its
// owner.
func prepareDir(dir string) (*account, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	owner, err := ownerOf(dir)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		if int(owner) != os.Geteuid() {
			return nil, fmt.Errorf("the data directory %s belongs to another user (uid %d)", dir, owner)
		}
		return nil, nil
	}
	return prepareAsRoot(dir, owner)
}

func prepareAsRoot(dir string, owner uint32) (*account, error) {
	if owner != 0 {
		runAs, err := lookUp(strconv.FormatUint(uint64(owner), 10))
		if err != nil {
			return nil, fmt.Errorf("PostgreSQL refuses to run as root and the owner of %s is unknown: %w", dir, err)
		}
		return runAs, mayEnter(runAs, dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the data directory: %w", err)
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("PostgreSQL refuses to run as root, and %s belongs to root and is not empty: choose another data directory", dir)
	}
	runAs, err := unprivileged()
	if err != nil {
		return nil, err
	}
	if err := mayEnter(runAs, dir); err != nil {
		return nil, err
	}
	if err := os.Lchown(dir, int(runAs.uid), int(runAs.gid)); err != nil {
		return nil, fmt.Errorf("give the data directory to %s: %w", runAs.name, err)
	}
	return runAs, nil
}

// unprivileged returns the account that is used instead of root. It needs a passwd entry:
// initdb looks up its own name.
func unprivileged() (*account, error) {
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		if found, err := user.Lookup(name); err == nil {
			return newAccount(found)
		}
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as")
}

func lookUp(uid string) (*account, error) {
	found, err := user.LookupId(uid)
	if err != nil {
		return nil, err
	}
	return newAccount(found)
}

func newAccount(found *user.User) (*account, error) {
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", found.Username, err)
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", found.Username, err)
	}
	return &account{name: found.Username, uid: uint32(uid), gid: uint32(gid)}, nil
}

// MayEnter checks, under root, that the account that PostgreSQL would run as can reach
// dir, or the part of its path that exists: root's own home is usually closed to it.
// Without root it accepts every path that exists.
func MayEnter(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	runAs, err := unprivileged()
	if err != nil {
		return err
	}
	return mayEnter(runAs, dir)
}

func mayEnter(runAs *account, dir string) error {
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("inspect the path of the data directory: %w", err)
		}
		if err == nil && !traversable(info, runAs) {
			return fmt.Errorf("PostgreSQL refuses to run as root, and user %s cannot enter %s (mode %04o): choose a data directory outside it, for example /var/lib/forge",
				runAs.name, parent, info.Mode().Perm())
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

// cacheDir returns the directory for downloaded programs. An account used instead of root
// has no home directory, so its programs are kept with the data.
func cacheDir(dataDir string, runAs *account) string {
	if runAs == nil {
		if cache, err := os.UserCacheDir(); err == nil {
			return filepath.Join(cache, "forge", "postgresql")
		}
	}
	return filepath.Join(dataDir, "programs")
}

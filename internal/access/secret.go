package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Prefixes of tokens and sessions. They differ, so that neither is accepted as the
// other.
const (
	tokenPrefix   = "forge_"
	sessionPrefix = "forgesession_"
)

// secretBytes is the number of random bytes after the prefix.
const secretBytes = 32

func newSecret(prefix string) string {
	var random [secretBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return prefix + base64.RawURLEncoding.EncodeToString(random[:])
}

// hashOf returns the stored hash of a secret; ok is false if secret does not have
// the right form.
func hashOf(prefix, secret string) (hash []byte, ok bool) {
	random, found := strings.CutPrefix(secret, prefix)
	if !found || len(random) != base64.RawURLEncoding.EncodedLen(secretBytes) {
		return nil, false
	}
	sum := sha256.Sum256([]byte(secret))
	return sum[:], true
}

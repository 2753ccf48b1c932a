package tokenstore

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// What tokens and sessions begin with: neither is taken for the other.
const (
	tokenPrefix   = "forge_"
	sessionPrefix = "forgesession_"
)

// secretBytes is how many random bytes follow the prefix.
const secretBytes = 32

func newSecret(prefix string) string {
	var random [secretBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return prefix + base64.RawURLEncoding.EncodeToString(random[:])
}

// hashOf is what is stored of a secret; ok is false for what cannot be one.
func hashOf(prefix, secret string) (hash []byte, ok bool) {
	random, found := strings.CutPrefix(secret, prefix)
	if !found || len(random) != base64.RawURLEncoding.EncodedLen(secretBytes) {
		return nil, false
	}
	sum := sha256.Sum256([]byte(secret))
	return sum[:], true
}

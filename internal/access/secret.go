package access

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
)

// Prefixes of tokens, of their sessions and of users' sessions. They differ, so that none
// is accepted as another.
const (
	tokenPrefix   = "forge_"
	sessionPrefix = "forgesession_"
	userPrefix    = "forgeuser_"
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

// seal encrypts texts with a key that is made from a secret. The database has only the
// secret's hash, so nobody can read the texts there.
func seal(secret string, texts ...string) []byte {
	plain, _ := json.Marshal(texts) // strings always encode
	box := sealer(secret)
	return box.Seal(nil, nil, plain, nil)
}

// unseal returns the two texts that seal encrypted.
func unseal(secret string, sealed []byte) (first, second string, err error) {
	plain, err := sealer(secret).Open(nil, nil, sealed, nil)
	if err != nil {
		return "", "", errors.New("the provider's tokens of a session cannot be decrypted")
	}
	var texts [2]string
	err = json.Unmarshal(plain, &texts)
	return texts[0], texts[1], err
}

// sealer encrypts with random nonces.
func sealer(secret string) cipher.AEAD {
	key := sha256.Sum256([]byte("seal " + secret))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	box, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return box
}

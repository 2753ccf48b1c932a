// Command dex runs dex, a provider of OpenID Connect, for the tests of logins: with its
// storage in memory and its mock connector, which logs everybody in as one user. The tests
// change who that is with a POST to /identity.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/dexidp/dex/connector"
	"github.com/dexidp/dex/connector/mock"
	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/server/signer"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
)

const readTimeout = 10 * time.Second

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to listen")
	redirect := flag.String("redirect", "", "the redirect URL of the client forge")
	life := flag.Duration("life", time.Hour, "how long ID tokens are valid")
	flag.Parse()
	if err := run(*listen, *redirect, *life); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(listen, redirect string, life time.Duration) error {
	ctx := context.Background()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	issuer := "http://" + listener.Addr().String() + "/dex"
	user := &user{}
	user.Identity = connector.Identity{UserID: "1", Username: "ann", Email: "ann@example.com", EmailVerified: true, Groups: []string{"platform"}}
	dex, err := newDex(ctx, issuer, redirect, life, user)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/dex/", dex)
	mux.HandleFunc("POST /identity", user.change)
	fmt.Println("issuer=" + issuer)
	served := &http.Server{Handler: mux, ReadHeaderTimeout: readTimeout}
	return served.Serve(listener)
}

func newDex(ctx context.Context, issuer, redirect string, life time.Duration, of *user) (*server.Server, error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	store := memory.New(logger)
	store = storage.WithStaticClients(store, []storage.Client{
		{ID: "forge", Secret: "s3cret-of-the-client", Name: "forge", RedirectURIs: []string{redirect}},
	})
	store = storage.WithStaticConnectors(store, []storage.Connector{{ID: "mock", Type: "mockCallback", Name: "Mock", ResourceVersion: "1"}})
	server.ConnectorsConfig["mockCallback"] = func() server.ConnectorConfig { return of }
	keys := signer.LocalConfig{KeysRotationPeriod: "6h"}
	sign, err := keys.Open(ctx, store, life, time.Now, logger)
	if err != nil {
		return nil, err
	}
	policy, err := server.NewRefreshTokenPolicy(logger, true, "", "", "0s") // each refresh token once
	if err != nil {
		return nil, err
	}
	return server.NewServer(ctx, server.Config{
		Issuer: issuer, Storage: store, SkipApprovalScreen: true, IDTokensValidFor: life, Logger: logger,
		Signer: sign, RefreshTokenPolicy: policy,
	})
}

// user is the mock connector with a user who can be changed.
type user struct {
	mu sync.Mutex
	mock.Callback
	// Ended makes the connector refuse to refresh logins.
	ended bool
}

func (u *user) Open(string, *slog.Logger) (connector.Connector, error) { return u, nil }

func (u *user) LoginURL(s connector.Scopes, callbackURL, state string) (string, []byte, error) {
	return u.Callback.LoginURL(s, callbackURL, state)
}

func (u *user) HandleCallback(connector.Scopes, []byte, *http.Request) (connector.Identity, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.Identity, nil
}

func (u *user) Refresh(context.Context, connector.Scopes, connector.Identity) (connector.Identity, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return connector.Identity{}, errors.New("the session has ended")
	}
	return u.Identity, nil
}

// change sets groups, and whether the session has ended.
func (u *user) change(w http.ResponseWriter, r *http.Request) {
	var to struct {
		Groups []string
		Ended  bool
	}
	if err := json.NewDecoder(r.Body).Decode(&to); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.Identity.Groups, u.ended = to.Groups, to.Ended
}

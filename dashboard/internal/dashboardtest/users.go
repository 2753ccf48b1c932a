package dashboardtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/access"
)

// Origin is the address of the pages, and Issuer that of the provider.
const (
	Origin = "http://127.0.0.1:8080"
	Issuer = "https://login.example.com"
)

// Provider logs in the user Login, whose code is "good".
type Provider struct {
	Mu    sync.Mutex
	Login access.Login
	// Err is returned by every method; Refreshed is how often a login was refreshed.
	Err       error
	Refreshed int
}

func (*Provider) Issuer() string { return Issuer }
func (*Provider) Origin() string { return Origin }

func (p *Provider) Check(context.Context) error {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return p.Err
}

func (p *Provider) Begin(ctx context.Context, attempt access.LoginAttempt) (string, error) {
	return Issuer + "/auth?state=" + attempt.State, p.Check(ctx)
}

func (p *Provider) Complete(ctx context.Context, attempt access.LoginAttempt, code string) (access.Login, error) {
	if code != "good" || attempt.Verifier == "" {
		return access.Login{}, fmt.Errorf("%w: the code was used", access.ErrInvalid)
	}
	return p.Login, p.Check(ctx)
}

func (p *Provider) Refresh(context.Context, access.Login) (access.Login, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.Refreshed++
	return p.Login, p.Err
}

func (*Provider) LogoutURL(_ context.Context, idToken string) string {
	return Issuer + "/end?id_token_hint=" + idToken
}

// EndedSession accepts "SUBJECT SESSION".
func (p *Provider) EndedSession(ctx context.Context, token string) (subject, session string, err error) {
	subject, session, ok := strings.Cut(token, " ")
	if !ok {
		return "", "", access.ErrInvalid
	}
	return subject, session, p.Check(ctx)
}

// UserSessions has sessions in memory.
type UserSessions struct {
	Mu  sync.Mutex
	All map[string]access.UserSession
	// Elapsed is added to the clock.
	Elapsed time.Duration
	claimed map[string]bool
}

func (s *UserSessions) now() time.Time { return Epoch.Add(s.Elapsed) }

func (s *UserSessions) Open(_ context.Context, of access.Login) (string, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	name := fmt.Sprint("forgeuser_", len(s.All))
	if s.All == nil {
		s.All, s.claimed = map[string]access.UserSession{}, map[string]bool{}
	}
	s.All[name] = access.UserSession{Login: of, ValidUntil: s.now().Add(of.Valid)}
	return name, nil
}

func (s *UserSessions) Session(_ context.Context, session string) (access.UserSession, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	found, ok := s.All[session]
	if !ok {
		return access.UserSession{}, access.ErrInvalid
	}
	found.Now = s.now()
	return found, nil
}

func (s *UserSessions) Claim(_ context.Context, session string, known access.UserSession, _ time.Duration) (bool, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.claimed[session] || !s.All[session].ValidUntil.Equal(known.ValidUntil) {
		return false, nil
	}
	s.claimed[session] = true
	return true, nil
}

func (s *UserSessions) Release(_ context.Context, session string) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	delete(s.claimed, session)
	return nil
}

func (s *UserSessions) Extend(ctx context.Context, session string, now access.Login) error {
	s.Mu.Lock()
	s.All[session] = access.UserSession{Login: now, ValidUntil: s.now().Add(now.Valid)}
	s.Mu.Unlock()
	return s.Release(ctx, session)
}

func (s *UserSessions) Close(_ context.Context, session string) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	delete(s.All, session)
	return nil
}

func (s *UserSessions) CloseAll(_ context.Context, issuer, subject, providerSession string) (n int64, err error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if issuer != Issuer {
		return 0, errors.New("another issuer")
	}
	for name, of := range s.All {
		if of.Subject == subject && (providerSession == "" || of.ProviderSession == providerSession) {
			delete(s.All, name)
			n++
		}
	}
	return n, nil
}

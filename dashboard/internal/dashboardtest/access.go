package dashboardtest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

type File struct{ *Cluster }

func (f File) Plan(_ context.Context, ahead time.Duration) (cronstore.Plan, error) {
	return cronstore.Plan{
		Hash: "b", InForce: "a", State: cronstore.StateApplied, From: Epoch, Until: Epoch.Add(ahead),
		Changes: changes(), UncountedLimits: 7, RemovedQueues: []cronstore.RemovedQueue{{Name: "mail", Jobs: 5}},
		Limits: []cronstore.LimitEffect{{Scope: "queue", Name: "bulk", Limit: 2, Key: "args.tenant", Jobs: 40, Values: 3}},
		Runs:   []cronstore.RunChange{{Cron: "x", Appear: 1, Until: Epoch}},
	}, nil
}

// changes are what two configurations differ in.
func changes() config.Diff {
	return config.Diff{"crons": {Added: []string{"x"}, Changed: []config.ItemChange{{Name: "y", Fields: []config.FieldChange{{Key: "schedule", From: "a", To: 7}}}}}}
}

func (f File) Apply(_ context.Context, confirm func(cronstore.Review) error) (cronstore.Outcome, error) {
	return cronstore.Outcome{State: cronstore.StateApplied, InForce: "b", Added: []string{"x"}}, Operator(f).note("backup", "apply")
}

func (File) CheckAlerts() ([]alerts.Problem, error) {
	return []alerts.Problem{{Alert: "quiet", Message: "the cluster has no metric x", Warning: true}}, nil
}

func (File) ExportAlerts() ([]byte, error) { return []byte("groups: []\n"), nil }

// Keeper has the tokens ci and backup, and one that is revoked, old.
type Keeper struct{ *Cluster }

func (f Keeper) List(context.Context) ([]access.Token, error) {
	return Read(f.Cluster, func() []access.Token {
		return []access.Token{
			{ID: 3, Name: "backup", Scope: access.Admin, State: access.StateActive, CreatedAt: Epoch, CreatedBy: "ada"},
			{ID: 1, Name: "ci", Scope: access.Viewer, State: access.StateActive, CreatedAt: Epoch, CreatedBy: "ada", ExpiresAt: Epoch.Add(time.Hour)},
			{ID: 2, Name: "old", Scope: access.Viewer, State: access.StateRevoked, CreatedAt: Epoch, RevokedAt: Epoch, RevokedBy: "bob"},
		}
	})
}

func (f Keeper) Create(_ context.Context, wanted access.NewToken) (string, access.Token, error) {
	if wanted.Name == "ci" {
		return "", access.Token{}, access.ErrTaken
	}
	return "forge_secret", access.Token{Name: wanted.Name, Scope: wanted.Scope, State: "active", CreatedAt: Epoch},
		Operator(f).note("backup", "token "+wanted.Name+" "+string(wanted.Scope)+" "+wanted.Life.String()+" by "+wanted.By)
}

func (f Keeper) Revoke(_ context.Context, name, by string) (access.Token, error) {
	if name == "nobody" {
		return access.Token{}, access.ErrNotFound
	}
	return access.Token{Name: name, State: "revoked", CreatedAt: Epoch, RevokedBy: by}, Operator(f).note("backup", "revoke "+name)
}

type Audit struct{ *Cluster }

func (f Audit) Begin(_ context.Context, e access.AuditEntry) (int64, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if f.Err != nil {
		return 0, f.Err
	}
	e.ID = int64(len(f.Audit) + 1)
	f.Audit = append(f.Audit, e)
	return e.ID, nil
}

func (f Audit) End(_ context.Context, id int64, outcome, detail string) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Audit[id-1].Outcome, f.Audit[id-1].Detail = outcome, detail
	return f.Err
}

func (f Audit) List(_ context.Context, filter access.AuditFilter) ([]access.AuditEntry, error) {
	return Read(f.Cluster, func() []access.AuditEntry { return f.Audit[:min(len(f.Audit), filter.Limit)] })
}

// Tokens has a token for each scope. The session of a token is "session-of-" and its
// name.
type Tokens struct{ *Cluster }

func (f Tokens) Verify(_ context.Context, token string) (access.Holder, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if f.Err != nil {
		return access.Holder{}, f.Err
	}
	if scope := f.Scopes[token]; scope != "" {
		return access.Holder{ID: f.Ids[token], Name: "a " + token, Scope: scope}, nil
	}
	return access.Holder{}, access.ErrInvalid
}

func (f Tokens) Session(ctx context.Context, session string) (access.Holder, error) {
	token, ok := strings.CutPrefix(session, "session-of-")
	if !ok {
		return access.Holder{}, access.ErrInvalid
	}
	return f.Verify(ctx, token)
}

func (f Tokens) Login(ctx context.Context, token string) (session string, of access.Holder, err error) {
	of, err = f.Verify(ctx, token)
	return "session-of-" + token, of, err
}

func (f Tokens) Logout(_ context.Context, session string) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Done = append(f.Done, "log out "+session)
	return f.Err
}

// Once stores answers in memory. The key "busy" is always in use.
type Once map[string]struct {
	access.KeyedRequest
	access.KeyedResponse
}

func (f Once) Once(ctx context.Context, r access.KeyedRequest, work func(context.Context) access.KeyedResponse) (access.KeyedResponse, bool, error) {
	known, ok := f[r.Caller+" "+r.Key]
	switch {
	case r.Key == "busy":
		return access.KeyedResponse{}, false, access.ErrKeyBusy
	case ok && known.KeyedRequest != r:
		return access.KeyedResponse{}, false, access.ErrKeyReused
	case ok:
		return known.KeyedResponse, true, nil
	}
	answer := work(ctx)
	if answer.Status < 300 {
		known.KeyedRequest, known.KeyedResponse = r, answer
		f[r.Caller+" "+r.Key] = known
	}
	return answer, false, nil
}

func (f Once) OnceNonTx(ctx context.Context, r access.KeyedRequest, work func(context.Context) access.KeyedResponse) (access.KeyedResponse, bool, error) {
	return f.Once(ctx, r, work)
}

// Configs has two configurations, of which the newer one is in force.
type Configs struct{ *Cluster }

// The hashes of the configurations.
const (
	NewHash = "bbbb2222"
	OldHash = "aaaa1111"
)

func (f Configs) SearchHistory(_ context.Context, q cronstore.HistoryQuery) ([]cronstore.Application, error) {
	return Read(f.Cluster, func() (all []cronstore.Application) {
		none, one := 0, 1
		for _, a := range []cronstore.Application{
			{ID: 2, At: Epoch, Hash: NewHash, NodeID: "node-1", File: "/etc/forge.toml", Added: &one, Changed: &none, Removed: &none, InForce: true},
			{ID: 1, At: Epoch.Add(-time.Hour), Hash: OldHash, NodeID: "node-2", By: "ada", Reverted: true},
		} {
			if (q.Before == 0 || a.ID < q.Before) && a.ID > q.After {
				all = append(all, a)
			}
		}
		if q.Oldest {
			slices.Reverse(all)
		}
		return cronstore.HistoryTable.Select(q.Where, Epoch, all[:min(len(all), q.Limit)])
	})
}

func (f Configs) DiffConfigs(_ context.Context, from, to string) (cronstore.ConfigDiff, error) {
	if to != NewHash && to != OldHash {
		return cronstore.ConfigDiff{}, cronstore.ErrNoConfig
	}
	return Read(f.Cluster, func() cronstore.ConfigDiff { return cronstore.ConfigDiff{From: from, To: to, Changes: changes()} })
}

func (f Configs) PlanRevert(ctx context.Context, hash string, ahead time.Duration) (cronstore.RevertPlan, error) {
	switch hash {
	case NewHash, OldHash:
	case "cccc":
		return cronstore.RevertPlan{}, &cronstore.UnrevertableError{Hash: hash, Reason: "a key is unknown"}
	default:
		return cronstore.RevertPlan{}, cronstore.ErrNoConfig
	}
	plan, err := File(f).Plan(ctx, ahead)
	plan.Hash, plan.InForce, plan.State = hash, NewHash, cronstore.StateSuperseded
	if hash == NewHash {
		plan.State, plan.Changes = cronstore.StateInForce, nil
	}
	return cronstore.RevertPlan{Plan: plan, Review: cronstore.Review{Removed: []string{"z"}, Configured: 3}, Undefined: []string{"dump"}}, err
}

func (f Configs) Revert(_ context.Context, hash string, confirm func(cronstore.Review) error) (cronstore.Outcome, error) {
	if hash != OldHash {
		return cronstore.Outcome{}, cronstore.ErrNoConfig
	}
	if err := confirm(cronstore.Review{Removed: []string{"z"}, Configured: 3}); err != nil {
		return cronstore.Outcome{}, err
	}
	return cronstore.Outcome{State: cronstore.StateApplied, InForce: hash, Removed: []string{"z"}}, Operator(f).note("backup", "revert "+hash)
}

// Sessions has a session of the user ann, and one of bob.
type Sessions struct{ *Cluster }

func openSessions() []access.OpenSession {
	return []access.OpenSession{
		{ID: "aaaaaaaaaaaaaaaa", User: "ann@example.com", Issuer: Issuer, Subject: "42", Groups: []string{"platform"}, CreatedAt: Epoch.Add(-time.Hour), ExpiresAt: Epoch.Add(11 * time.Hour), Now: Epoch},
		{ID: "bbbbbbbbbbbbbbbb", User: "bob <b>", Issuer: Issuer, Subject: "43", Groups: []string{}, CreatedAt: Epoch.Add(-2 * time.Hour), ExpiresAt: Epoch.Add(10 * time.Hour), Now: Epoch},
	}
}

func (f Sessions) List(_ context.Context, issuer, subject string) ([]access.OpenSession, error) {
	return Read(f.Cluster, func() []access.OpenSession {
		return slices.DeleteFunc(openSessions(), func(o access.OpenSession) bool { return issuer != "" && (o.Issuer != issuer || o.Subject != subject) })
	})
}

func (f Sessions) End(ctx context.Context, id, issuer, subject string) (access.OpenSession, error) {
	sessions, err := f.List(ctx, issuer, subject)
	i := slices.IndexFunc(sessions, func(o access.OpenSession) bool { return o.ID == id })
	if err != nil || i < 0 {
		return access.OpenSession{}, cmp.Or(err, access.ErrNotFound)
	}
	f.Done = append(f.Done, "end the session of "+sessions[i].User)
	return sessions[i], nil
}

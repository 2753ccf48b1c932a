package access

import (
	"time"

	"github.com/forge-scheduler/forge/internal/filter"
)

// FilterTable declares the keys of the filters of tokens.
var FilterTable = filter.Table[Token]{
	{
		Key:   filter.Key{Name: "token", Example: "ci*", About: "the name"},
		Texts: func(t *Token, _ time.Time) []string { return []string{t.Name} },
	},
	{
		Key:   filter.Key{Name: "scope", Type: filter.Choice, Values: scopeNames(), Example: string(Admin), About: "the scope"},
		Texts: func(t *Token, _ time.Time) []string { return []string{string(t.Scope)} },
	},
	{
		Key:   filter.Key{Name: "state", Type: filter.Choice, Values: []string{StateActive, StateExpired, StateRevoked}, Example: StateActive, About: "the state"},
		Texts: func(t *Token, _ time.Time) []string { return []string{t.State} },
	},
	{
		Key:   filter.Key{Name: "by", Example: "ada*", About: "who created it"},
		Texts: func(t *Token, _ time.Time) []string { return []string{t.CreatedBy} },
	},
	{
		Key: filter.Key{Name: "expires", Type: filter.Duration, Example: "<7d", About: "the time until it expires"},
		Span: func(t *Token, now time.Time) (time.Duration, bool) {
			return t.ExpiresAt.Sub(now), !t.ExpiresAt.IsZero()
		},
	},
	{
		Key:  filter.Key{Name: "unused", Type: filter.Duration, Example: ">30d", About: "the time since its last use, or since it was created"},
		Span: func(t *Token, now time.Time) (time.Duration, bool) { return now.Sub(t.lastUse()), true },
	},
}

// Orders declares the orders of tokens.
var Orders = filter.Orders[Token]{
	{Name: "name", About: "by name, revoked tokens last"},
	{Name: "expires", About: "the next to expire first, those that never do last", Compare: func(a, b *Token) int {
		switch {
		case a.ExpiresAt.IsZero() == b.ExpiresAt.IsZero():
			return a.ExpiresAt.Compare(b.ExpiresAt)
		case a.ExpiresAt.IsZero():
			return 1
		default:
			return -1
		}
	}},
	{Name: "used", About: "the longest unused first", Compare: func(a, b *Token) int { return a.lastUse().Compare(b.lastUse()) }},
	{Name: "created", About: "the newest first", Compare: func(a, b *Token) int { return b.CreatedAt.Compare(a.CreatedAt) }},
}

// lastUse returns when the token was last used; when it was created, if it never was.
func (t *Token) lastUse() time.Time {
	if t.LastUsedAt.IsZero() {
		return t.CreatedAt
	}
	return t.LastUsedAt
}

func scopeNames() []string {
	names := make([]string, len(Scopes))
	for i, scope := range Scopes {
		names[i] = string(scope)
	}
	return names
}

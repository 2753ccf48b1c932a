package postgres

import (
	"maps"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// clientParams are parameters of the start-up message: forge's texts are UTF-8, and pgx parses
// times of the style ISO only. PgBouncer accepts them in every mode. The values are PostgreSQL's
// defaults, so that a pooler changes no session that has them.
var clientParams = map[string]string{"client_encoding": "UTF8", "DateStyle": "ISO, MDY"}

// SetClientParams sets them whatever the address, the role and the database say.
func SetClientParams(config *pgconn.Config) {
	maps.DeleteFunc(config.RuntimeParams, func(name, _ string) bool {
		return strings.EqualFold(name, "client_encoding") || strings.EqualFold(name, "DateStyle")
	})
	maps.Copy(config.RuntimeParams, clientParams)
}

// sessionSettings returns the settings of a session on which forge's statements rely, and which
// a role or a database may have changed.
func sessionSettings() map[string]string {
	return map[string]string{
		"default_transaction_isolation": "read committed", // a statement sees what another committed while it waited for a lock
		"standard_conforming_strings":   "on",
		"statement_timeout":             "0", // contexts limit statements; migrations may take long
	}
}

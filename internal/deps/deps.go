// Package deps pins modules while the rooms are being built; it goes before the end.
package deps

import (
	_ "github.com/BurntSushi/toml"
	_ "github.com/chromedp/chromedp"
	_ "github.com/dustin/go-humanize"
	_ "github.com/fergusstrange/embedded-postgres"
	_ "github.com/gofrs/flock"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/jedib0t/go-pretty/v6/table"
	_ "github.com/lmittmann/tint"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/prometheus/prometheus/model/rulefmt"
	_ "github.com/prometheus/prometheus/promql/parser"
	_ "github.com/riverqueue/river"
	_ "github.com/riverqueue/river/rivershared/riverpilot"
	_ "github.com/riverqueue/river/rivertype"
	_ "github.com/robfig/cron/v3"
	_ "github.com/spf13/cobra"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "pgregory.net/rapid"
	_ "sigs.k8s.io/yaml"
)

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronexpr"
	"github.com/forge-scheduler/forge/internal/importer"
	"github.com/forge-scheduler/forge/internal/redact"
)

// importing is what the importers share.
type importing struct {
	*app

	paused bool
}

func (a *app) importCommand() *cobra.Command {
	i := &importing{app: a}
	cmd := group("import", "Translate crontabs, CronJobs of Kubernetes and jobs of pg_cron into TOML",
		i.importCrontabCommand(), i.importCronJobsCommand(), i.importPgCronCommand())
	cmd.PersistentFlags().BoolVar(&i.paused, "paused", false, "write every cron as paused, so that it does not fire beside its original")
	return cmd
}

// importHelp is the part of the help that all importers share.
const importHelp = "\n\nPrints crons and jobs as TOML on standard output, for a file of your own or a directory that include names.\n" +
	"Nothing is applied. What forge does differently is in comments and on standard error. A part that cannot\n" +
	"be imported is in a comment too; the command prints the rest and exits with 3."

func (a *importing) importCrontabCommand() *cobra.Command {
	var o importer.CrontabOptions
	cmd := &cobra.Command{
		Use: "crontab [FILE]", Short: "Translate a crontab", Args: cobra.MaximumNArgs(1),
		Long: "Translates a crontab of Vixie cron or cronie from a file or standard input. /etc/crontab and the files of\n" +
			"/etc/cron.d have a user before the command; for other files of that format use --system." + importHelp,
		Example: "  crontab -l | forge import crontab --paused > crons.d/crontab.toml\n" +
			"  forge import crontab /etc/cron.d/backup --timezone Europe/Berlin",
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkZoneFlag(o.Timezone); err != nil {
				return err
			}
			file := "-"
			if len(args) > 0 {
				file = args[0]
			}
			assumed := o.Timezone == ""
			if assumed {
				o.Timezone = hostZone()
			}
			o.System = o.System || systemCrontab(file)
			return a.importFiles([]string{file}, "crontab -l | forge import crontab", func(name string, r io.Reader) (*importer.Result, error) {
				result, err := importer.Crontab(name, r, o)
				if err == nil && assumed {
					result.Header = append(result.Header, "cron uses the zone of its host. This host's is "+o.Timezone+"; for a crontab of another host use --timezone.")
				}
				return result, err
			})
		},
	}
	cmd.Flags().BoolVar(&o.System, "system", false, "there is a user before each command, as in /etc/crontab")
	cmd.Flags().StringVar(&o.Timezone, "timezone", "", "zone of the host whose crontab it is (default this host's)")
	return cmd
}

func (a *importing) importCronJobsCommand() *cobra.Command {
	var zone string
	cmd := &cobra.Command{
		Use: "cronjobs [FILE...]", Short: "Translate CronJobs of Kubernetes", Args: cobra.ArbitraryArgs,
		Long: "Translates the CronJobs (batch/v1) of YAML files or of standard input. Each becomes a command that runs\n" +
			"on a node: forge starts no containers." + importHelp,
		Example: "  kubectl get cronjobs -A -o yaml | forge import cronjobs > crons.d/cronjobs.toml\n" +
			"  forge import cronjobs deploy/backup.yaml deploy/report.yaml",
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkZoneFlag(zone); err != nil {
				return err
			}
			if len(args) == 0 {
				args = []string{"-"}
			}
			taken := importer.Names{}
			return a.importFiles(args, "kubectl get cronjobs -o yaml | forge import cronjobs", func(name string, r io.Reader) (*importer.Result, error) {
				return importer.CronJobs(name, r, zone, taken)
			})
		},
	}
	cmd.Flags().StringVar(&zone, "timezone", "UTC", "zone of CronJobs without timeZone: that of kube-controller-manager")
	return cmd
}

func (a *importing) importPgCronCommand() *cobra.Command {
	var o importer.PgCronOptions
	var databases []string
	cmd := &cobra.Command{
		Use: "pg_cron [FILE]", Short: "Translate jobs of pg_cron", Args: cobra.MaximumNArgs(1),
		Long: "Translates the jobs of pg_cron: those in cron.job of the configured database, or those of a CSV file of\n" +
			"cron.job. pg_cron shows a user only its own jobs, and superusers all. A job is paused unless --database\n" +
			"has the address of its database." + importHelp,
		Example: "  FORGE_DATABASE_URL=postgres:///postgres forge import pg_cron > crons.d/pg_cron.toml\n" +
			"  psql -c \"\\copy (SELECT * FROM cron.job) TO 'jobs.csv' CSV HEADER\" && forge import pg_cron jobs.csv\n" +
			"  forge import pg_cron jobs.csv --database 'app=${env:APP_DATABASE_URL}'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkZoneFlag(o.Timezone); err != nil {
				return err
			}
			var err error
			if o.Databases, err = parseDatabases(databases); err != nil {
				return usageError(err)
			}
			if len(args) > 0 {
				return a.importFiles(args, "forge import pg_cron jobs.csv", func(name string, r io.Reader) (*importer.Result, error) {
					return importer.PgCronCSV(name, r, o)
				})
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				result, err := importer.PgCron(ctx, pool, o)
				if refused, ok := errors.AsType[*pgconn.PgError](err); ok && (refused.Code == "42P01" || refused.Code == "3F000") {
					return notFound("this database has no cron.job; pg_cron has it in the database that cron.database_name names, by default postgres")
				}
				if err != nil {
					return err
				}
				return a.printImport(result)
			})
		},
	}
	cmd.Flags().StringVar(&o.Timezone, "timezone", "", "zone of the schedules (default cron.timezone, or UTC for a file)")
	// No flag of pairs: it would cut an address with a list of servers at its commas.
	cmd.Flags().StringArrayVar(&databases, "database", nil, "address of a database of the jobs, as NAME=ADDRESS; may be a reference, and may be repeated")
	return cmd
}

// parseDatabases reads NAME=ADDRESS pairs. An address may be a reference, which is not checked.
func parseDatabases(pairs []string) (map[string]string, error) {
	databases := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		name, address, _ := strings.Cut(pair, "=")
		if name == "" || address == "" {
			return nil, fmt.Errorf("--database %q: want NAME=ADDRESS", redact.PasswordInURL(pair))
		}
		if !strings.Contains(address, "${") {
			if _, err := pgconn.ParseConfig(address); err != nil {
				return nil, fmt.Errorf("--database %s: not an address of PostgreSQL (got %q); want one such as postgres://USER@HOST/NAME", name, redact.Address(address))
			}
		}
		databases[name] = address
	}
	return databases, nil
}

func checkZoneFlag(zone string) error {
	if zone == "" {
		return nil
	}
	if _, err := cronexpr.LoadZone(zone); err != nil {
		return usageError(fmt.Errorf("--timezone: %w", err))
	}
	return nil
}

// importFiles imports files, of which - is standard input.
func (a *importing) importFiles(files []string, example string, read func(name string, r io.Reader) (*importer.Result, error)) error {
	var refused error
	for i, file := range files {
		result, err := importFile(file, example, read)
		if err != nil {
			return err
		}
		if i > 0 {
			a.printf("\n")
		}
		err = a.printImport(result)
		if coded, ok := errors.AsType[*codedError](err); err != nil && (!ok || coded.code != exitConfig) {
			return err
		}
		refused = cmp.Or(refused, err)
	}
	return refused
}

func importFile(file, example string, read func(name string, r io.Reader) (*importer.Result, error)) (*importer.Result, error) {
	if file == "-" {
		if term.IsTerminal(int(os.Stdin.Fd())) {
			return nil, usageError(fmt.Errorf("want a FILE, or its text on standard input: %s", example))
		}
		return parseImport("standard input", os.Stdin, read)
	}
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.Close() }() // it was only read
	return parseImport(file, opened, read)
}

func parseImport(name string, r io.Reader, read func(name string, r io.Reader) (*importer.Result, error)) (*importer.Result, error) {
	result, err := read(name, r)
	if err != nil {
		return nil, configError(err)
	}
	return result, nil
}

// printImport prints what was imported, and on standard error what was not.
func (a *importing) printImport(result *importer.Result) error {
	if a.paused {
		result.Pause()
	}
	if err := result.Write(a.out); err != nil {
		return err
	}
	for _, remark := range result.Header {
		a.note(result.Source + ": note: " + remark)
	}
	a.warn(config.Report{Problems: result.Notes()})
	problems := result.Problems()
	a.note(fmt.Sprintf("%s: %d crons imported, %d refused", result.Source, result.Crons(), len(problems)))
	if len(problems) == 0 {
		return nil
	}
	return configError(errors.New(config.Report{Problems: problems}.String()))
}

func systemCrontab(file string) bool {
	full := absolute(file)
	return full == "/etc/crontab" || filepath.Dir(full) == "/etc/cron.d"
}

// hostZone returns the zone of this host, or UTC if it has no name.
func hostZone() string {
	for _, candidate := range []string{os.Getenv("TZ"), zoneFile("/etc/timezone"), zoneLink("/etc/localtime")} {
		candidate = strings.TrimPrefix(candidate, ":")
		if _, err := cronexpr.LoadZone(candidate); candidate != "" && err == nil {
			return candidate
		}
	}
	return "UTC"
}

func zoneFile(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func zoneLink(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	_, zone, _ := strings.Cut(target, "zoneinfo/")
	return zone
}

package pages

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/web"
)

func cronsPath(filter string) string { return "/crons?" + web.Encode("is", filter) }

func nodePath(id string) string { return "/nodes/" + url.PathEscape(id) }

func rolePath(role string) string { return "/leaders/" + url.PathEscape(role) }

func jobsIn(state string) string { return "/jobs?" + web.Encode("state", state) }

func deadPath(group string) string { return "/dead/" + url.PathEscape(group) }

func alertPath(name string) string { return "/alerts/" + url.PathEscape(name) }

// CronPath returns the address of a cron's page.
func CronPath(name string) string { return "/crons/" + url.PathEscape(name) }

// tickPath returns the address of a tick in the ledger of its cron.
func tickPath(cron string, tick time.Time) string {
	return CronPath(cron) + "?" + web.Encode("at", tick.UTC().Format(time.RFC3339Nano)) + "#h-ticks"
}

func queueJobs(name string) string { return "/jobs?" + web.Encode("queue", name) }

// queuePath returns the address of a queue's page. An address cannot have some names that only
// programs can give a queue; it is then that of the queue's jobs.
func queuePath(name string) string {
	if name == "" || name == "." || name == ".." {
		return queueJobs(name)
	}
	return "/queues/" + url.PathEscape(name)
}

func jobPath(id int64) string { return "/jobs/" + strconv.FormatInt(id, 10) }

// safeURL returns only web addresses, because other nodes write the row and the page links
// to it.
func safeURL(address string) string {
	if strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://") {
		return address
	}
	return ""
}

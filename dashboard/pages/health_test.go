package pages

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

func TestHealthHeadlineIsWorstFinding(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	facts := clusterFacts{now: dashboardtest.Epoch, nodes: c.Nodes, leaders: c.Leaders}
	if h := judge(facts, dashboardtest.OutlinesOf(c.Crons), nil, facts.now); h.Tone != "ok" || h.Headline != "Every role has a leader and every cron is on time" {
		t.Errorf("all is well: %+v", h)
	}
	c.Crons[0].NextTick = dashboardtest.Epoch.Add(-3 * time.Second)
	if h := judge(facts, dashboardtest.OutlinesOf(c.Crons), nil, facts.now); h.Tone != "warn" || h.Headline != "1 cron is overdue" {
		t.Errorf("overdue: %+v", h)
	}
	c.Leaders[1].NodeID = ""
	h := judge(facts, dashboardtest.OutlinesOf(c.Crons), nil, facts.now)
	if h.Tone != "bad" || h.Headline != "No node leads as scheduler" || len(h.Notes) != 2 || h.Notes[1] != (remark{"1 cron is overdue.", "/crons?is=overdue"}) {
		t.Errorf("no scheduler: %+v", h)
	}
}

func TestHealthNamesWhatBlocksCrons(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	facts := clusterFacts{now: dashboardtest.Epoch, nodes: c.Nodes, leaders: c.Leaders}
	c.Crons[0].Blocked = cronstore.Blocked{By: 42, Since: dashboardtest.Epoch.Add(-time.Minute)}
	note := remark{c.Crons[0].Name + " is blocked by job 42, which is running.", "/jobs/42"}
	h := judge(facts, dashboardtest.OutlinesOf(c.Crons), map[int64]string{42: "running"}, facts.now)
	if h.Tone != "ok" || h.Headline != "Every role has a leader, and 1 cron is blocked by an earlier run" || len(h.Notes) != 1 || h.Notes[0] != note {
		t.Errorf("blocked by a run that has started: %+v", h)
	}
	h = judge(facts, dashboardtest.OutlinesOf(c.Crons), map[int64]string{42: "available"}, facts.now)
	if h.Tone != "warn" || h.Headline != "1 cron waits for a run that has not started" || h.Path != "/crons?is=blocked" {
		t.Errorf("blocked by a run that waits: %+v", h)
	}
	c.Crons[0].PausedAt = dashboardtest.Epoch
	if h := judge(facts, dashboardtest.OutlinesOf(c.Crons), nil, facts.now); h.Headline != "Every role has a leader and every cron is on time" {
		t.Errorf("paused: %+v", h)
	}
}

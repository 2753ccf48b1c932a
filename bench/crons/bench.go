package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// warmUp is how long a system fires before the ticks count, at most.
const warmUp = 3 * time.Second

// bench is one run: a PostgreSQL, the processes on it and what was measured.
type bench struct {
	options
	rig    *rig.Rig
	report *report
	// commitTimes says that the server keeps the times of commits.
	commitTimes bool
	started     int // processes so far; each gets a name of its own
	say         func(format string, args ...any)
}

func newBench(ctx context.Context, o options, progress io.Writer) (*bench, error) {
	b := &bench{options: o, say: rig.Progress(progress)}
	b.say("starting PostgreSQL")
	var err error
	b.rig, err = rig.NewAnywhere(ctx, "forge-crons", map[string]string{"track_commit_timestamp": "on", "max_connections": "200"})
	if err != nil {
		return nil, err
	}
	b.report = newReport(o)
	if err := b.prepare(ctx); err != nil {
		return nil, errors.Join(err, b.rig.Close())
	}
	return b, nil
}

// prepare reads what the server is and keeps.
func (b *bench) prepare(ctx context.Context) error {
	keeps, err := b.rig.Setting(ctx, "track_commit_timestamp")
	if err != nil {
		return err
	}
	if b.commitTimes = keeps == "on"; !b.commitTimes {
		b.report.settings["forge_inserts"] = "left out: track_commit_timestamp is off"
	}
	return b.rig.Describe(ctx, b.report.settings)
}

// field is a system with its workload on a database.
type field struct {
	system   *system
	workload workload
	url      string
	pool     *pgxpool.Pool
}

func (b *bench) field(ctx context.Context, s *system, w workload) (*field, error) {
	url, pool, err := b.rig.Database(ctx)
	if err != nil {
		return nil, err
	}
	f := &field{system: s, workload: w, url: url, pool: pool}
	if err := s.prepare(ctx, f); err != nil {
		pool.Close()
		return nil, err
	}
	return f, nil
}

// start starts a node and returns where it writes its starts.
func (b *bench) start(f *field) (path string, err error) {
	b.started++
	id := fmt.Sprintf("n%d", b.started)
	body, err := json.Marshal(f.workload)
	if err != nil {
		return "", fmt.Errorf("encode the workload: %w", err)
	}
	path = filepath.Join(b.rig.Dir, id+".starts")
	_, err = b.rig.StartNode(id, f.url, fmt.Sprintf("slots = %d", b.slots), nodeEnv+"="+f.system.name, urlEnv+"="+f.url,
		idEnv+"="+id, startsEnv+"="+path, slotsEnv+"="+strconv.Itoa(b.slots), workloadEnv+"="+string(body))
	return path, err
}

// leader waits for a leader among the processes, other than the one named.
func (b *bench) leader(ctx context.Context, f *field, not string) (leader *rig.Process, err error) {
	err = rig.Await(ctx, "a leader of "+f.system.name, func(ctx context.Context) (bool, error) {
		for _, p := range b.rig.Processes() {
			if err := p.Alive(); err != nil && p.ID != not {
				return false, err
			}
		}
		var id string
		if err := f.pool.QueryRow(ctx, f.system.leaderSQL, not).Scan(&id); err != nil {
			return false, err
		}
		for _, p := range b.rig.Processes() {
			if p.ID == id {
				leader = p
			}
		}
		return leader != nil, nil
	})
	return leader, err
}

// measure runs the system for a while. With kill set its leader is killed after
// a fifth of the time.
func (b *bench) measure(ctx context.Context, f *field, length time.Duration, kill bool) (*outcome, error) {
	defer b.rig.KillAll()
	var paths []string
	for range b.nodes {
		path, err := b.start(f)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	leader, err := b.leader(ctx, f, "")
	if err != nil {
		return nil, err
	}
	if err := b.firstJob(ctx, f); err != nil {
		return nil, err
	}
	from := time.Now().Add(min(warmUp, b.duration/2)).Truncate(time.Second)
	until := from.Add(length.Truncate(time.Second))
	if err := rig.SleepUntil(ctx, from.Add(500*time.Millisecond)); err != nil {
		return nil, err
	}
	usage := startUsage(b.rig, leader)
	if kill {
		if err := b.killLeader(ctx, f, leader, from.Add(length/5)); err != nil {
			return nil, err
		}
	}
	if err := rig.SleepUntil(ctx, until.Add(500*time.Millisecond)); err != nil {
		return nil, err
	}
	out := &outcome{expected: f.workload.due(from, until)}
	if !kill {
		if err := usage.end(out); err != nil {
			return nil, err
		}
	}
	return out, b.collect(ctx, f, paths, from, until, out)
}

// firstJob waits until the system fires, if that is not long: River's leader
// takes a while to begin.
func (b *bench) firstJob(ctx context.Context, f *field) error {
	if f.workload.Period > 1 && !f.workload.Spread {
		return nil
	}
	return rig.Await(ctx, "the first job of "+f.system.name, func(ctx context.Context) (some bool, err error) {
		err = f.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM river_job)`).Scan(&some)
		return some, err
	})
}

// killLeader kills in the midst of a second, as ticks have just been fired.
func (b *bench) killLeader(ctx context.Context, f *field, leader *rig.Process, at time.Time) error {
	if err := rig.SleepUntil(ctx, at); err != nil {
		return err
	}
	b.say("%s: killing the leader", f.system.name)
	leader.Kill()
	_, err := b.leader(ctx, f, leader.ID)
	return err
}

// collect waits until what was inserted has started and counts.
func (b *bench) collect(ctx context.Context, f *field, paths []string, from, until time.Time, out *outcome) error {
	deadline := time.Now().Add(f.system.drain)
	for {
		if err := f.system.count(ctx, f, from, until, out); err != nil {
			return err
		}
		all, err := rig.ReadStarts(paths)
		if err != nil {
			return err
		}
		if err := out.take(f, all, from, until); err != nil {
			return err
		}
		if out.missed == 0 && int64(len(out.start)) >= out.ran || time.Now().After(deadline) {
			break
		}
		if err := rig.SleepUntil(ctx, time.Now().Add(200*time.Millisecond)); err != nil {
			return err
		}
	}
	if f.system == forgeSystem && !b.commitTimes {
		return nil
	}
	return f.system.inserts(ctx, f, from, until, out)
}

// processUsage is what the server and a leader had used when the counting began.
type processUsage struct {
	at               time.Time
	rig              *rig.Rig
	leader           *rig.Process
	server, worked   time.Duration
	serverErr, ldErr error
}

func startUsage(r *rig.Rig, leader *rig.Process) processUsage {
	u := processUsage{at: time.Now(), rig: r, leader: leader}
	u.server, u.serverErr = r.ServerCPU()
	u.worked, u.ldErr = rig.CPU(leader.PID())
	return u
}

// end fills in the shares of a core since then.
func (u processUsage) end(out *outcome) error {
	if u.ldErr != nil {
		return nil //nolint:nilerr // no such figures on this system
	}
	length := float64(time.Since(u.at))
	if u.serverErr == nil {
		server, err := u.rig.ServerCPU()
		if err != nil {
			return err
		}
		out.serverCPU = 100 * float64(server-u.server) / length
	}
	worked, err := rig.CPU(u.leader.PID())
	if err != nil {
		return err
	}
	out.leaderCPU = 100 * float64(worked-u.worked) / length
	memory, err := rig.Memory(u.leader.PID())
	out.memory = float64(memory) / (1 << 20)
	return err
}

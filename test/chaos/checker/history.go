package checker

import "time"

// Values of Cron.Overlap, Cron.CatchUp and the verdicts, as forge writes them.
// They are repeated here because the checker must not take forge's word.
const (
	OverlapSkip     = "skip"
	OverlapAllow    = "allow"
	OverlapQueue    = "queue"
	OverlapQueueAll = "queue_all"
	OverlapReplace  = "replace"
	// OverlapReplaceWaiting replaces runs that have not started.
	OverlapReplaceWaiting = "replace_waiting"

	CatchUpNone   = "none"
	CatchUpLatest = "latest"
	CatchUpAll    = "all"

	Fired           = "fired"
	CaughtUp        = "caught_up"
	Triggered       = "triggered"
	Queued          = "queued"
	Replaced        = "replaced"
	SkippedOverlap  = "skipped_overlap"
	SkippedWindow   = "skipped_window"
	SkippedLimit    = "skipped_limit"
	SkippedExcluded = "skipped_excluded"
)

// Cron is a cron as the run configured it.
type Cron struct {
	Name     string
	Rule     Rule
	Excluded *Rule // nil: nothing is
	Jitter   time.Duration
	Overlap  string
	CatchUp  string
	Window   time.Duration
	Limit    int
	// It is due after Since and before Until.
	Since, Until time.Time
}

// Row is a row of the ledger at the end.
type Row struct {
	Cron    string
	Tick    time.Time
	Last    time.Time // zero: it stands for one tick
	Count   int64
	Verdict string
	Reason  string
	JobID   int64
	Term    int64
	Node    string
}

// Entry is one write to the ledger, in the journal.
type Entry struct {
	Seq     int64     // drawn at the commit
	At      time.Time // of the commit
	Txid    int64     // those of one transaction were decided at one instant
	Cron    string
	Tick    time.Time
	Verdict string
	Term    int64
	Node    string
}

// Lead is one change of a role's leader, in the journal.
type Lead struct {
	Seq  int64
	At   time.Time
	Role string
	Term int64
	Node string // empty: the role was vacated
	// Deleted says that somebody has deleted the role's row.
	Deleted bool
	// Began is when the statement began. Forge draws its own time between Began and At.
	Began time.Time
}

// Leap says that the database's clock was set.
type Leap struct {
	At time.Time     // by the clock, afterwards
	By time.Duration // forwards; back is negative
}

// Job is a job at the end.
type Job struct {
	ID        int64
	Cron      string
	Tick      time.Time
	State     string
	Attempt   int64
	Finalized time.Time // by the node; zero: it has not come to its end
	// Ended is when the database was told, by the journal. It may be much later:
	// until then the job is active, whatever became of its run.
	Ended time.Time
	// EndedSeq is the journal's number of that; 0: it is not known.
	EndedSeq int64
}

// Line is what a job writes about itself. Tick is zero for a job without cron.
type Line struct {
	What    string    `json:"what"`
	At      time.Time `json:"at"`
	Cron    string    `json:"cron,omitempty"`
	Tick    time.Time `json:"tick,omitzero"`
	Job     int64     `json:"job"`
	Attempt int64     `json:"attempt"`
	Term    int64     `json:"term"`
	Node    string    `json:"node"`
	// Ahead is how far the database's clock may have been ahead of this one.
	Ahead time.Duration `json:"ahead,omitempty"`
}

// Values of Line.What.
const (
	Began = "began"
	Ended = "ended"
)

// History is all that is known of a run.
type History struct {
	Crons   []Cron
	Rows    []Row
	Entries []Entry // by Seq
	Leads   []Lead  // by Seq
	Jobs    []Job
	Lines   []Line
	Leaps   []Leap
	// Tenures are what forge recorded of its leaders, Sightings what was seen of them.
	Tenures   []Tenure
	Sightings []Sighting
	Acked     []int64 // jobs whose enqueuing was acknowledged
	// Poisoned are those of them that can never succeed.
	Poisoned []int64
	// Unwitnessed says that the jobs wrote no lines: nothing is concluded from there
	// being none.
	Unwitnessed bool
	// Runs are the attempts of limited jobs, by Seq. KeyLimits is how many jobs of a kind may run
	// at once with one key, and Rates how many may start.
	Runs      []Run
	KeyLimits map[string]int
	Rates     map[string]Rate
	Turns     []Turn
}

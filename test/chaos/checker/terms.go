package checker

import (
	"cmp"
	"slices"
	"time"
)

// scheduler is the role in whose name the ledger is written.
const scheduler = "scheduler"

// checkTerms follows the leaders and the ledger in the order in which they were
// written.
func (c *check) checkTerms() {
	current := map[string]Lead{} // the last acquire of each role; no node: vacated
	leads, entries := c.Leads, c.Entries
	slices.SortFunc(leads, func(a, b Lead) int { return cmp.Compare(a.Seq, b.Seq) })
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	for len(leads)+len(entries) > 0 {
		if len(entries) == 0 || len(leads) > 0 && leads[0].Seq < entries[0].Seq {
			lead := leads[0]
			c.checkLead(current[lead.Role], lead)
			if lead.Node == "" { // a row that was made anew knows no term
				lead.Term = max(lead.Term, current[lead.Role].Term)
			}
			current[lead.Role] = lead
			leads = leads[1:]
			continue
		}
		entry := entries[0]
		entries = entries[1:]
		if c.isFollowUp(entry) || byHand(entry) {
			continue
		}
		if now := current[scheduler]; entry.Term != now.Term || entry.Node != now.Node {
			c.find(StaleTerm, entry.Cron, entry.Tick, "%s wrote %s in term %d, when the term was %d of %q",
				entry.Node, entry.Verdict, entry.Term, now.Term, now.Node)
		}
	}
}

// byHand says that somebody asked for the run. That needs no lead.
func byHand(entry Entry) bool {
	return entry.Verdict == Triggered && entry.Term == 0 && entry.Node == ""
}

func (c *check) checkLead(before, now Lead) {
	switch {
	case now.Node == "" && (now.Term == before.Term || now.Deleted || now.Term == 0): // vacated, or made anew
	case now.Term < before.Term, now.Term == before.Term && before.Node == "":
		c.find(TermDown, "", time.Time{}, "%s: term %d of %q follows term %d of %q", now.Role, now.Term, now.Node, before.Term, before.Node)
	case now.Term == before.Term && now.Node != before.Node:
		c.find(TwoLeaders, "", time.Time{}, "%s: %s and %s both led term %d", now.Role, before.Node, now.Node, now.Term)
	}
}

// isFollowUp says that an entry tells how a run ended that fired before: it keeps
// the term in which that was. Its writer is the tick that took its place in the
// same transaction, which is judged for itself.
func (c *check) isFollowUp(entry Entry) bool {
	first := c.entries[keyOf(entry.Cron, entry.Tick)][0]
	return entry.Verdict == Replaced && entry.Seq != first.Seq
}

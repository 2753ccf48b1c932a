// Package doctor checks a database, the connections to it and the cluster on it, and
// names problems that would break leadership.
//
// Gather collects facts without evaluating them; a failure to read something is also a
// fact. Examine evaluates the facts: each check is a pure function, so that tests cover
// conditions that are hard to produce, such as a wrong clock, as well as easy
// ones.
//
// Grants and lock holders are separate reports: MissingGrants finds the privileges that a
// login lacks and writes the statements that grant them; LeadersWithHolders finds the
// sessions that hold the advisory locks of the cluster's roles without leading one.
package doctor

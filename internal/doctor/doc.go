// Package doctor examines a database, the way to it and the cluster on it, and
// names what would break leadership.
//
// Gather collects facts and judges nothing; a failure to learn something is a
// fact too. Examine judges the facts: each check is a pure function, so that what
// is hard to bring about, a replica or a clock that is wrong, is tested as well as
// what is easy.
package doctor

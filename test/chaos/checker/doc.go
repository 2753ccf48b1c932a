// Package checker judges the history of a cluster that was broken on purpose.
//
// It knows nothing of forge's code. What is due comes from an oracle that tries
// every second (Rule); what forge did comes from four places that cannot all be
// wrong in the same way: the ledger and the jobs as they stand at the end, a
// journal that triggers wrote in the order in which things happened, and the
// lines that the jobs themselves synced to a file outside the database.
//
// The journal's order is exact where clocks are not: a leader's write and the
// acquire of the next term exclude each other by a row lock, so the numbers that
// their triggers drew say which came first.
//
// Check is a pure function. Each Kind of finding has a made-up history in the
// tests that earns it.
package checker

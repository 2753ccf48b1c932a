// Package outbox owns forge_notifications: what receivers are to be told of runs
// that failed for good.
//
// A row is written by the database itself, in the transaction that makes the
// failure final: triggers on river_job (the job is discarded) and on the ledger
// (the verdict is failed) look up what the cron's definition wants. So it does
// not matter who finishes the job (its node, the rescue of orphans, an operator),
// nor what dies right afterwards, and clusters whose crons want nothing pay for
// nothing but the look.
//
// The leader of the metrics aggregator delivers. It claims rows in the name of
// its term, which gives it some time to send them, sends, and writes down what
// came of it:
//
//	pending --claim--> pending, next_at = now + claimFor --sent--> delivered
//	                                                     --refused--> failed
//	                                                     --else--> pending, next_at = now + backoff
//
// A leader that dies in between leaves a row that is due again after claimFor:
// everything is told at least once, and receivers that know the key of a message
// tell the repetition.
package outbox

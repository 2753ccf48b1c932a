// Package alerts owns forge_alerts, the open and past occurrences of [[alerts]];
// forge_silences, the alerts that do not notify their receivers for now; and
// forge_notifications, the messages to receivers about alerts and about runs that finally
// failed. Package alerting evaluates the conditions and sends the messages.
//
// The leader of the metrics aggregator writes the messages about alerts. The database
// itself writes the row of a failed run, in the transaction that makes the failure final:
// triggers on river_job (the job is discarded) and on the ledger (the verdict is failed)
// read the receivers from the cron's definition. So it does not matter what finishes the
// job (its node, the rescue of orphans, an operator) or dies right afterwards, and crons
// without receivers cost only this look-up.
//
// The Dispatcher delivers on the leader of the metrics aggregator. It claims rows under
// its term for a limited time, sends them, and records the result:
//
//	pending --claim--> pending, next_at = now + claimTimeout --sent--> delivered
//	                                                     --refused--> failed
//	                                                     --else--> pending, next_at = now + backoff
//
// The backoff is spread at random, and is not shorter than the wait that the receiver asks for
// (RetryAfterError).
//
// One loop claims rows of one receiver at a time and saves results. Each message is sent in a
// goroutine of its own, at most maxSendsPerReceiver at a time to a receiver and maxSends in
// all, so a receiver that hangs delays only its own messages. Targets with the same name
// before the colon are one receiver.
//
// A leader that dies in between leaves a row that is due again after claimTimeout: every
// message is sent at least once, and receivers recognize a repetition by the key of the
// message.
package alerts

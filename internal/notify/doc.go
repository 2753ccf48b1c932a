// Package notify tells people and programs outside the cluster: the receivers
// of [notify.NAME]. The notifiers are Alertmanager's own, so that a receiver
// gets from forge what it gets from there, and the texts are its templates.
//
// A target names a receiver and, after a colon, a place of it: slack:#ops is the
// channel of the receiver slack, mail:ops@example.com an address, and
// pager:critical a severity. A webhook has no places.
package notify

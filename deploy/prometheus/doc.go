// Package prometheus tests the alert rules of this directory in a real Prometheus.
package prometheus

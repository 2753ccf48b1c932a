// Package dashboardtest has an in-memory cluster for tests of the dashboard.
package dashboardtest

// Package live streams: server-sent events of pages, and followed lists as lines of JSON.
package live

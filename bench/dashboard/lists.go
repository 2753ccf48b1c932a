package main

import (
	"context"
	"net/url"
)

// list is the address of a list by a filter, in an order.
type list struct{ page, filter, sort string }

func (l list) path() string {
	values := url.Values{}
	for key, value := range map[string]string{"filter": l.filter, "sort": l.sort} {
		if value != "" {
			values.Set(key, value)
		}
	}
	return l.page + "?" + values.Encode()
}

// String is the list without the escapes of an address.
func (l list) String() string {
	text := l.page
	if l.filter != "" {
		text += " " + l.filter
	}
	if l.sort != "" {
		text += " sort=" + l.sort
	}
	return text
}

// lists have each term and each order, and those that are hardest together.
var lists = []list{
	{"/jobs", "kind:kind-7", ""},
	{"/jobs", "kind:kind-1*", ""},
	{"/jobs", "kind:nothing", ""},
	{"/jobs", "kind:nothing*", ""},
	{"/jobs", "queue:mail", ""},
	{"/jobs", "queue:ra*", ""},
	{"/jobs", "cron:cron-000042", ""},
	{"/jobs", "cron:cron-00*7", ""},
	{"/jobs", "state:discarded", ""},
	{"/jobs", "state:discarded state:cancelled", ""},
	{"/jobs", "node:filler", ""},
	{"/jobs", "node:nothing", ""},
	{"/jobs", "took:>100ms", ""},
	{"/jobs", "took:>10s", ""},
	{"/jobs", "error:status", ""},
	{"/jobs", "error:nothing", ""},
	{"/jobs", "tag:nothing", ""},
	{"/jobs", "since:1h", ""},
	{"/jobs", "until:1h", ""},
	{"/jobs", "until:9h30m", ""},
	{"/jobs", "until:13h", ""},
	{"/jobs", "since:2h until:1h error:status", ""},
	{"/jobs", "", "slowest"},
	{"/jobs", "since:1h", "slowest"},
	{"/jobs", "until:5h", "slowest"},
	{"/jobs", "kind:kind-7", "slowest"},
	{"/jobs", "kind:nothing", "slowest"},
	{"/jobs", "cron:cron-000042", "slowest"},
	{"/jobs", "state:discarded", "slowest"},
	{"/jobs", "took:>100ms node:filler", "slowest"},
	{"/jobs", "", "waiting"},
	{"/jobs", "kind:kind-7", "waiting"},
	{"/dead", "kind:kind-7", ""},
	{"/dead", "error:status since:1h", ""},
	{"/dead", "", "jobs"},
	{"/crons", "cron:cron-00*7", ""},
	{"/crons", "next:<1h", "next"},
	{"/nodes", "state:active", "load"},
}

// eachList is how often each list is requested.
const eachList = 5

// measureLists measures the time to the first byte of each list.
func measureLists(ctx context.Context, o options, say func(string, ...any)) (measured []*page, err error) {
	for _, l := range o.lists {
		say("%s", l)
		p := &page{Path: l.String()}
		for range eachList * o.n {
			if err := p.get(ctx, o.url+l.path()); err != nil {
				return nil, err
			}
		}
		measured = append(measured, p)
	}
	return measured, nil
}

package netguard

import (
	"errors"
	"net/netip"
	"testing"
)

// guarded are addresses of every range, and their neighbours.
var guarded = []struct {
	address           string
	default_, private bool // allowed
}{
	{"93.184.215.14", true, true},
	{"2606:4700::1111", true, true},
	{"127.0.0.1", false, true},
	{"127.9.9.9", false, true},
	{"::1", false, true},
	{"10.1.2.3", false, true},
	{"172.16.0.1", false, true},
	{"172.32.0.1", true, true},
	{"192.168.1.1", false, true},
	{"fd12::1", false, true},
	{"100.64.0.1", false, true},
	{"198.18.0.1", false, true},
	{"::ffff:10.0.0.1", false, true},
	{"::ffff:169.254.169.254", false, false},
	{"0.0.0.0", false, false},
	{"::", false, false},
	{"169.254.169.254", false, false},
	{"fe80::1%eth0", false, false},
	{"100.100.100.200", false, false},
	{"fd00:ec2::254", false, false},
	{"168.63.129.16", false, false},
	{"224.0.0.1", false, false},
	{"ff02::1", false, false},
	{"240.0.0.1", false, false},
	{"255.255.255.255", false, false},
	{"64:ff9b::a9fe:a9fe", false, false},
	{"64:ff9b:1::1", false, false},
	{"2002:a9fe:a9fe::1", false, false},
	{"2001:0:1::1", false, false},
	{"::a00:1", false, false},
	{"::ffff:0:a00:1", false, false},
	{"2001:db8::1", false, false},
	{"100.127.255.255", false, true},
	{"100.128.0.0", true, true},
	{"198.19.255.255", false, true},
	{"198.20.0.0", true, true},
	{"172.31.255.255", false, true},
	{"0.255.255.255", false, false},
	{"169.254.0.1", false, false},
	{"fec0::1", false, false},
	{"239.255.255.255", false, false},
	{"192.0.0.192", false, false}, // a metadata service
	{"192.0.2.1", false, false},
	{"198.51.100.1", false, false},
	{"203.0.113.1", false, false},
	{"3fff::1", false, false},
	{"192.88.99.1", false, false},
	{"64:ff9b::808:808", false, false},
	{"100::1", false, false},
	{"fd20:ce::254", false, false},
}

func TestGuard(t *testing.T) {
	t.Parallel()
	for _, test := range guarded {
		address := netip.MustParseAddr(test.address)
		for private, want := range map[bool]bool{false: test.default_, true: test.private} {
			err := Guard{AllowPrivate: private}.Check(address)
			if (err == nil) != want || (err != nil && !errors.Is(err, ErrBlocked)) {
				t.Errorf("%s, private targets %t: got %v, want allowed %t", test.address, private, err, want)
			}
		}
	}
}

// What is named is opened, and nothing beside it.
func TestGuardOpensRanges(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		address, allowed string
		open             bool
	}{
		{"10.1.2.3", "10.1.0.0/16", true},
		{"10.2.2.3", "10.1.0.0/16", false},
		{"::ffff:10.1.2.3", "10.1.0.0/16", true},
		{"127.0.0.1", "127.0.0.0/8", true},
		{"::1", "::1/128", true},
		{"::1", "127.0.0.0/8", false},
		{"fd12::1", "fd12::/16", true},
		{"169.254.169.254", "169.254.169.254/32", true},
		{"169.254.169.254", "169.254.0.0/16", true},
		{"169.254.169.254", "0.0.0.0/0", false}, // which did not have it in mind
		{"100.100.100.200", "100.64.0.0/10", false},
		{"100.100.100.200", "100.100.100.200/32", true},
		{"10.1.2.3", "0.0.0.0/0", true},
		{"93.184.215.14", "10.1.0.0/16", true},
	} {
		err := Guard{Allowed: prefixes(test.allowed)}.Check(netip.MustParseAddr(test.address))
		if (err == nil) != test.open || (err != nil && !errors.Is(err, ErrBlocked)) {
			t.Errorf("%s with %s allowed: got %v, want open %t", test.address, test.allowed, err, test.open)
		}
	}
}

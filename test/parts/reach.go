package parts

import (
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Reachable returns server settings under which namespaces reach a server, too;
// file is a new file that says whom it lets in.
func Reachable(file string, namespaces ...*Namespace) (map[string]string, error) {
	addresses := []string{"127.0.0.1"}
	for _, n := range namespaces {
		addresses = append(addresses, n.Outside().String())
	}
	const admitted = "host all all 127.0.0.1/32 scram-sha-256\nhost all all 198.18.0.0/15 scram-sha-256\n"
	if err := os.WriteFile(file, []byte(admitted), 0o644); err != nil { //nolint:gosec // the server's account reads it
		return nil, fmt.Errorf("say who may reach the server: %w", err)
	}
	return map[string]string{"listen_addresses": strings.Join(addresses, ","), "hba_file": file}, nil
}

// Through is a server's address as seen from inside a namespace.
func (n *Namespace) Through(server string) (string, error) {
	address, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("parse the server's address: %w", err)
	}
	address.Host = n.Outside().String() + ":" + address.Port()
	return address.String(), nil
}

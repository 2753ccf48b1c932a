package alerting

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// dialFunc connects to a host.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// relay is a way to one host that ends with a context.
type relay struct {
	listener net.Listener
	stop     context.CancelFunc
	dial     dialFunc
	running  sync.WaitGroup
	err      error // why the host was not reached, once nothing runs
}

// openRelay carries one connection to a host, until ctx ends or close is called.
func openRelay(ctx context.Context, host string, dial dialFunc) (*relay, error) {
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a relay: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	r := &relay{listener: listener, stop: stop, dial: dial}
	r.running.Go(func() {
		<-ctx.Done()
		_ = listener.Close() // ends Accept
	})
	r.running.Go(func() { r.carry(ctx, host) })
	return r, nil
}

func (r *relay) address() net.Addr { return r.listener.Addr() }

// close ends the connection, waits until nothing is left of it, and returns why
// the host was not reached, if it was not.
func (r *relay) close() error {
	r.stop()
	r.running.Wait()
	return r.err
}

func (r *relay) carry(ctx context.Context, host string) {
	near, err := r.listener.Accept()
	if err != nil {
		return // nobody came before the end
	}
	defer func() { _ = near.Close() }()
	far, err := r.dial(ctx, "tcp", host)
	if err != nil {
		r.err = err
		return
	}
	var pumps sync.WaitGroup
	cut := context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })
	defer cut()
	pumps.Go(func() { pump(far, near) })
	pumps.Go(func() { pump(near, far) })
	pumps.Wait()
	_ = far.Close()
}

// pump copies until one side ends, and passes the end on.
func pump(to, from net.Conn) {
	_, _ = io.Copy(to, from) // whoever speaks finds out
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

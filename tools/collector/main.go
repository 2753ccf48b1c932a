// Command collector runs the OTLP receiver of the OpenTelemetry collector for the test of
// exported spans. It prints its URL, and then each batch of spans, encoded as the receiver got
// it, in base64.
package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config) //nolint:errcheck // its own
	config.Protocols.GRPC = configoptional.None[configgrpc.ServerConfig]()
	config.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = address
	printer, err := consumer.NewTraces(new(batches).print)
	if err != nil {
		return err
	}
	settings := receiver.Settings{
		ID: component.NewID(factory.Type()), TelemetrySettings: componenttest.NewNopTelemetrySettings(), BuildInfo: component.NewDefaultBuildInfo(),
	}
	traces, err := factory.CreateTraces(ctx, settings, config, printer)
	if err != nil {
		return err
	}
	if err := traces.Start(ctx, componenttest.NewNopHost()); err != nil {
		return err
	}
	fmt.Println("http://" + address)
	<-ctx.Done()
	return nil
}

// freeAddress returns an address that nobody listens on: the receiver does not tell on which
// port it listens.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// batches prints one batch after the other.
type batches struct{ mu sync.Mutex }

func (b *batches) print(_ context.Context, traces ptrace.Traces) error {
	encoded, err := new(ptrace.ProtoMarshaler).MarshalTraces(traces)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err = fmt.Println(base64.StdEncoding.EncodeToString(encoded))
	return err
}

// Command trace is a web server and a worker whose spans are one trace: the context of each
// request goes with its job, as the W3C traceparent in the job's headers.
//
//	go run . worker &
//	go run . web &
//	curl 'http://127.0.0.1:8080/thumbnail?of=sea.jpg'
//
// The spans go to the collector at OTEL_EXPORTER_OTLP_ENDPOINT, http://localhost:4318 by default.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	gloom "gloom/clients/go"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "where the web server listens")
	broker := flag.String("broker", "", "the broker's address for submitters or workers; empty for the default ones")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Arg(0), *listen, *broker); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, role, listen, broker string) error {
	flush, err := startTracing(ctx, role)
	if err != nil {
		return err
	}
	defer flush()
	var opts []gloom.Option
	if broker != "" {
		opts = append(opts, gloom.Addrs(broker))
	}
	switch role {
	case "web":
		return serveWeb(ctx, listen, opts)
	case "worker":
		return serveThumbnails(ctx, opts)
	}
	return fmt.Errorf("usage: trace web | worker, not %q", role)
}

// startTracing sends all spans of this process to the collector; flush sends the last spans.
func startTracing(ctx context.Context, service string) (flush func(), err error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	provider := trace.NewTracerProvider(
		trace.WithBatcher(exporter, trace.WithBatchTimeout(time.Second)),
		trace.WithResource(resource.NewSchemaless(attribute.String("service.name", service))),
	)
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Print(err)
		}
	}, nil
}

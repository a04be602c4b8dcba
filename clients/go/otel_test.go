package gloom_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	gloom "gloom/clients/go"
)

// A trace continues in the worker: its context is in the job's headers.
func ExampleHeaders() {
	submitAddr, workerAddr, stop := runBroker()
	defer stop()
	ctx := context.Background()

	// In a program: an exporter to a collector, and the global propagator.
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	tracer := provider.Tracer("example")
	propagator := propagation.TraceContext{}

	w := &gloom.Worker{
		Type:    "mail",
		Headers: true,
		Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
			ctx = propagator.Extract(ctx, &job.Headers)
			_, span := tracer.Start(ctx, "send "+job.Type)
			defer span.End()
			return "sent", nil
		},
		Options: []gloom.Option{gloom.Addrs(workerAddr)},
	}
	if err := w.Start(ctx); err != nil {
		log.Fatal(err)
	}
	jobs, err := gloom.Dial(ctx, gloom.Addrs(submitAddr))
	if err != nil {
		log.Fatal(err)
	}
	defer jobs.Close()

	ctx, span := tracer.Start(ctx, "order")
	job := gloom.Job{Type: "mail"}
	propagator.Inject(ctx, &job.Headers)
	if _, err := jobs.Do(ctx, job); err != nil {
		log.Fatal(err)
	}
	span.End()
	w.Stop(ctx)

	for _, s := range spans.GetSpans() {
		if s.Parent.IsValid() {
			fmt.Println(s.Name, "is part of the order:", s.Parent.SpanID() == span.SpanContext().SpanID() &&
				s.SpanContext.TraceID() == span.SpanContext().TraceID())
		}
	}
	// Output: send mail is part of the order: true
}

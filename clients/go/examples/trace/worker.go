package main

import (
	"context"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	gloom "gloom/clients/go"
)

// serveThumbnails makes thumbnails, or pretends to.
func serveThumbnails(ctx context.Context, opts []gloom.Option) error {
	w := &gloom.Worker{Type: "thumbnail", Headers: true, Options: opts, Handler: thumbnail}
	return w.Run(ctx)
}

func thumbnail(ctx context.Context, job *gloom.Job) (any, error) {
	ctx = otel.GetTextMapPropagator().Extract(ctx, &job.Headers)
	ctx, span := tracer.Start(ctx, "run "+job.Type, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attribute.String("job.id", job.ID)))
	defer span.End()
	var of string
	if err := json.Unmarshal(job.Body, &of); err != nil {
		return nil, gloom.Fatal(err)
	}
	simulateStep(ctx, "fetch", 12*time.Millisecond)
	simulateStep(ctx, "shrink", 25*time.Millisecond)
	return "a thumbnail of " + of, nil
}

// simulateStep stands for a part of the work, in a span of its own.
func simulateStep(ctx context.Context, name string, takes time.Duration) {
	_, span := tracer.Start(ctx, name)
	defer span.End()
	time.Sleep(takes)
}

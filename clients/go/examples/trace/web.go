package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	gloom "gloom/clients/go"
)

var tracer = otel.Tracer("gloom/clients/go/examples/trace")

// serveWeb answers GET /thumbnail with a worker's answer.
func serveWeb(ctx context.Context, listen string, opts []gloom.Option) error {
	jobs, err := gloom.Dial(ctx, opts...)
	if err != nil {
		return err
	}
	defer jobs.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /thumbnail", func(w http.ResponseWriter, r *http.Request) {
		// Continue the caller's trace, if the request has a trace.
		ctx := otel.GetTextMapPropagator().Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := tracer.Start(ctx, "GET /thumbnail", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		body, _ := json.Marshal(r.URL.Query().Get("of")) // a string can always be encoded
		result, err := submitTraced(ctx, jobs, gloom.Job{Type: "thumbnail", Body: body})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_, _ = w.Write(result.Body)
	})
	server := &http.Server{Addr: listen, Handler: mux}
	go func() {
		<-ctx.Done()
		_ = server.Shutdown(context.Background())
	}()
	log.Printf("web is listening at http://%s/thumbnail?of=sea.jpg", listen)
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// submitTraced submits a job and waits for its result. The job carries its span: the worker's
// span is a child of it.
func submitTraced(ctx context.Context, jobs *gloom.Submitter, job gloom.Job) (gloom.Result, error) {
	ctx, span := tracer.Start(ctx, "job "+job.Type, trace.WithSpanKind(trace.SpanKindProducer))
	defer span.End()
	otel.GetTextMapPropagator().Inject(ctx, &job.Headers)
	result, err := jobs.Do(ctx, job)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return result, err
}

package main

import (
	"context"
	"math/rand/v2"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"gloom/broker/guard"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/daemon"
	"gloom/cmd/internal/door"
	"gloom/cmd/jq-master/master"
	"gloom/cmd/jq-master/push"
	"gloom/cmd/jq-master/store"
	"gloom/cmd/jq-master/web"
)

// run runs the daemon until it is stopped or fails.
func run(o *options) error {
	daemon.HoldHangup()
	log, err := daemon.OpenLog(daemon.LogConfig{LevelConsole: o.logLevel, Format: o.logFormat}, os.Stderr)
	if err != nil {
		return err
	}
	daemon.LimitMemory()
	jobStore, err := o.openStore(log.Logger)
	if err != nil {
		return err
	}
	defer jobStore.Close()
	d, err := door.Listen(o.door, log.Logger, false, web.Scopes...)
	if err != nil {
		return err
	}
	signals := d.Signals(log.Audit, o.file.Reload)
	defer signals.Close()
	registry := daemon.NewRegistry()
	pusher := push.New(o.allowedPrefixes)
	prefix := o.typePrefix()
	m := master.Open(master.Options{
		Limits: o.limits, Store: jobStore, Push: pusher, Namespace: o.namespace, Prefix: prefix, SingleRunPrefix: o.singleRunPrefix(prefix), Seed: rand.Uint64(), Log: log.Logger,
		Broker: func() (master.Broker, error) { return o.openBroker(log.Logger) }, Shared: o.broker.SubmitAddr != "",
		Schedules: o.file, ReadJob: web.ReadScheduledJob,
		Persisted: o.redis != "" || o.constraints != "",
	})
	registry.MustRegister(m)
	if c, ok := jobStore.(prometheus.Collector); ok {
		registry.MustRegister(c)
	}
	webServer := web.New(web.Config{
		Master: m, Door: d, MaxBody: o.maxBody, WorkerPort: o.workerPort, CheckURL: pusher.Check, Registry: registry,
	})
	d.Serve(webServer)
	go webServer.Watch(nil) // it watches for as long as the process runs
	o.announce(d, log)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx); close(ended) }()
	daemon.NotifyReady()
	select {
	case err = <-ended:
	case <-signals.Stop.Done():
		err = o.stop(m, signals, log.Logger)
	}
	closeCtx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = d.Shutdown(closeCtx) // the server ends before the master, so that pending replies are written
	stop()
	if e := <-ended; err == nil {
		err = e
	}
	log.Info().Err(err).Msg("jq-master has stopped")
	return err
}

func (o *options) stop(m *master.Master, signals *daemon.Signals, log zerolog.Logger) error {
	daemon.NotifyStopping()
	log.Info().Stringer("drain", o.drain).Msgf("draining: no job is accepted or handed out; waiting up to %s for running jobs; a second signal stops at once", o.drain)
	ctx, cancel := context.WithTimeout(signals.Kill, o.drain)
	defer cancel()
	_ = m.Drain(ctx)
	if signals.Kill.Err() != nil {
		return cli.Failf(cli.ExitAborted, "stopped before all running jobs had ended")
	}
	return nil
}

func (o *options) openStore(log zerolog.Logger) (store.Store, error) {
	if o.redis != "" {
		r, err := store.Open(store.Options{URL: o.redis, Namespace: o.namespace, Log: log})
		if err != nil { // the URL may contain a password
			return nil, &guard.OptionError{Flag: "redis", Value: "URL", Reason: "must be redis://, rediss:// or unix://, without unknown options"}
		}
		return r, nil
	}
	if o.constraints != "" {
		return openConstraintFile(store.NewMemory(), o.constraints)
	}
	return store.NewMemory(), nil
}

func (o *options) announce(d *door.Door, log *daemon.Log) {
	l := &o.limits
	log.Announce("jq-master is ready", func(e *zerolog.Event) { e.Stringer("addr", d.Addr()) }, func(e *zerolog.Event) {
		e.Str("version", cli.Version()).Str("namespace", o.namespace).
			Bool("redis", o.redis != "").Str("broker", o.broker.SubmitAddr).Bool("tls", d.HasTLS()).Bool("tokens", o.door.TokenFile != "").
			Int("max_jobs", l.MaxJobs).Int64("max_bytes", l.MaxBytes).Int("max_workers", l.MaxWorkers).
			Int("max_conns", d.MaxConns()).Int("max_body", o.maxBody)
	})
	if o.redis == "" {
		log.Warn().Msg("jobs are in memory only: they are lost when this process ends; --redis keeps them")
	}
	if o.door.Insecure && d.IsExposed() {
		log.Warn().Msg("--insecure: any client that reaches this address may push, work and administer")
	}
}

// Command jobd runs the rows of a MySQL table as jobs.
package main

import (
	"os"

	"gloom/cmd/internal/daemon"
	"gloom/cmd/jobd/bridge"
	"gloom/cmd/jobd/config"
)

const help = `jobd runs the rows of a MySQL or MariaDB table as jobs. It launches a command
for each row, as many at once for each target as its configuration allows, and
writes the result into the row. jobctl polls, pauses and inspects it;
jobd-master passes requests on to many of them.

--check reads the configuration and lists all errors with their lines.

Signals: SIGTERM and SIGINT stop it when running jobs have ended, at most
shutdown_timeout later; a second one stops at once. SIGHUP opens log_file again.

Exit status: 0 after a stop; 1 if it cannot start, the configuration is wrong,
or a second signal cut the stop short.`

func main() {
	bridge.Main()
	var cfg *config.Worker
	os.Exit(daemon.Program{
		Name:       "jobd",
		Short:      "Run the rows of a MySQL table as jobs",
		Long:       help,
		ConfigPath: config.DefaultWorkerPath,
		Load:       func(path string) (err error) { cfg, err = config.LoadWorker(path); return err },
		Warnings:   func() []string { return cfg.Warnings },
		Run:        func() error { return run(cfg, bridge.Await, os.Stdout) },
	}.Main(os.Args[1:], os.Stdout, os.Stderr))
}

package jobd

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"gloom/bench/door"
	"gloom/bench/result"
)

// Command returns the subcommand of gloom-bench.
func Command() *cobra.Command {
	o := DefaultOptions()
	cmd := &cobra.Command{
		Use:   "jobd",
		Short: "rows per second through the MySQL bridge",
		Long: `jobd measures how many rows of a table go from waiting to done per second.

--mode bridge (the default) uses workers that answer at once, through
the broker inside a jobd; --mode launch runs a process per row; --mode
original does without either, on one connection with one UPDATE per state of a
row, as the original daemon is documented to do.

Without --mysql-user a MariaDB is started on a throw-away directory, at its
default durability: every commit is flushed. Every row is checked at the end.`,
	}
	f := cmd.Flags()
	f.StringVar(&o.Mode, "mode", o.Mode, "bridge, launch or original")
	f.IntVar(&o.Rows, "rows", o.Rows, "rows of a round")
	f.IntVar(&o.Backlog, "backlog", o.Backlog, "further rows that wait, for a target without a worker")
	f.IntVar(&o.Targets, "targets", o.Targets, "targets over which the rows are spread")
	f.IntVar(&o.Concurrency, "concurrency", o.Concurrency, "rows of a target that run at once")
	f.IntVar(&o.FetchLimit, "fetch-limit", o.FetchLimit, "mysql_fetch_limit, 0 for none")
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "measurements")
	f.StringVar(&o.Command, "command", o.Command, "launcher of --mode launch; {id} is the row's id")
	f.IntVar(&o.Answer, "answer", o.Answer, "bytes of a worker's answer")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "time limit of a round")
	f.StringVar(&o.MySQL.Host, "mysql-host", "127.0.0.1", "existing server to use, with --mysql-user")
	f.IntVar(&o.MySQL.Port, "mysql-port", 3306, "its port")
	f.StringVar(&o.MySQL.Socket, "mysql-socket", "", "its unix socket, instead of host and port")
	f.StringVar(&o.MySQL.User, "mysql-user", "", "user; none starts a server")
	f.StringVar(&o.MySQL.Password, "mysql-password", os.Getenv("GLOOM_BENCH_MYSQL_PASSWORD"), "password, also from GLOOM_BENCH_MYSQL_PASSWORD")
	f.StringVar(&o.MySQL.Database, "mysql-database", "test", "database; tables named "+tableName+" in it are dropped")
	f.Lookup("mysql-password").DefValue = ""
	return door.Command(cmd, func(ctx context.Context, w io.Writer) (any, error) {
		rep, err := Run(ctx, o, func(r Round) {
			fmt.Fprintf(w, "%9.0f rows/s  %6.2f s  database %5.1f µs/row  own %5.1f µs/row  %.0f rows/write  %.3f flushes/row  others %.2f CPUs\n", r.Rate(), r.Seconds,
				door.PerJob(r.DatabaseCPU, r.Rows), door.PerJob(r.OwnCPU, r.Rows), r.Batch, float64(r.Flushes)/float64(r.Rows), r.OthersCPU)
		})
		if rep == nil {
			return nil, err
		}
		rep.printSummary(w)
		return rep, err
	})
}

// printSummary prints the median and the spread.
func (rep *Report) printSummary(w io.Writer) {
	if len(rep.Rounds) == 0 {
		return
	}
	var rates []float64
	for _, r := range rep.Rounds {
		rates = append(rates, r.Rate())
	}
	fmt.Fprintf(w, "%s: %s; %s, innodb_flush_log_at_trx_commit=%s\n", rep.Options.Mode, result.DescribeSpread(rates, "rows/s"), rep.Database, rep.Flush)
}

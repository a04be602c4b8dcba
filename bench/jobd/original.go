package jobd

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// originalRun runs the rows as the documentation of the original jobd describes: it
// selects a page of rows for update, and accepts them with one UPDATE. Then each row
// costs one UPDATE to running and one to done, each in its own transaction, all over
// one connection. The cost that a Node process adds is not counted.
type originalRun struct {
	conn    *sql.Conn
	targets string
	limit   int
	answer  string // what each row gets as its output
}

func newOriginalRun(ctx context.Context, b *testDB, o Options, answer string) (*originalRun, error) {
	conn, err := b.session(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range o.Targets {
		names = append(names, "'"+targetName(i)+"'")
	}
	return &originalRun{conn: conn, targets: strings.Join(names, ","), limit: max(o.FetchLimit, 1), answer: answer}, nil
}

func (r *originalRun) run(ctx context.Context, _ int) error {
	for {
		if n, err := r.runPage(ctx); err != nil || n == 0 {
			return err
		}
	}
}

func (r *originalRun) runPage(ctx context.Context) (int, error) {
	tx, err := r.conn.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT id, status, target FROM %s WHERE status = 'waiting' AND target IN (%s) ORDER BY id LIMIT 0, %d FOR UPDATE",
		tableName, r.targets, r.limit))
	if err != nil {
		return 0, err
	}
	var ids []string
	for rows.Next() {
		var id, status, target string
		if err := rows.Scan(&id, &status, &target); err != nil {
			return 0, err
		}
		ids = append(ids, id)
	}
	rows.Close()
	if len(ids) == 0 {
		return 0, rows.Err()
	}
	if _, err := tx.ExecContext(ctx, "UPDATE "+tableName+" SET status = 'accepted' WHERE id IN ("+strings.Join(ids, ",")+")"); err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	for _, id := range ids {
		if _, err := r.conn.ExecContext(ctx, "UPDATE "+tableName+" SET status = 'running', result = 'ok', time_started = ? WHERE id = ?", time.Now().Unix(), id); err != nil {
			return 0, err
		}
		if _, err := r.conn.ExecContext(ctx, "UPDATE "+tableName+" SET status = 'done', result = 'ok', time_finished = ?, return_code = 0, sig = NULL, stderr = '', stdout = ? WHERE id = ?",
			time.Now().Unix(), r.answer, id); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

func (r *originalRun) close() {
	r.conn.Close()
}

package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// table describes the table of jobs: names quoted for SQL, the limits of the columns that the store
// fills, and the index for reading targets in order.
type table struct {
	name            string // name of the table, quoted like the names below
	claims          string
	index           string // index that begins with status and target, in any order; "" if there is none
	canListTargets  bool   // the index begins with status, so targets can be listed
	targetCondition string // SQL condition that a target equals the parameter exactly
	targetParam     string // SQL of the parameter, for comparing by the index
	hasCreated      bool   // there is a column time_created
	userColumns     []userColumn
	hasPrio         bool

	stdout, stderr column
}

// column is a text column and its limits.
type column struct {
	charset   string // "" for a column of bytes
	collation string // "" for a column of bytes
	maxBytes  int64
	maxChars  int64
}

// userColumn is a column that the user has added.
type userColumn struct {
	name     string // not quoted
	isNumber bool   // its text is a JSON number
}

// requiredColumns are the columns that we read and write.
var requiredColumns = []string{"id", "target", "status", "time_started", "time_finished", "result", "return_code", "sig", "stdout", "stderr"}

// ownedColumns are the columns that do not belong to the user.
var ownedColumns = append([]string{"time_created"}, requiredColumns...)

// quoteName quotes a name, which may be qualified by a database and may already be quoted.
func quoteName(name string) string {
	database, tableName := splitName(name)
	if database == "" {
		return quotePart(tableName)
	}
	return quotePart(database) + "." + quotePart(tableName)
}

func quotePart(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// splitName returns the database, "" if it is not named, and the name of the table.
func splitName(name string) (database, tableName string) {
	name = strings.ReplaceAll(name, "`", "")
	if database, tableName, ok := strings.Cut(name, "."); ok {
		return database, tableName
	}
	return "", name
}

// companionTable returns the default name of the companion table, in the same database as the table.
func companionTable(table string) string { return strings.ReplaceAll(table, "`", "") + "_claims" }

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func readTableShape(ctx context.Context, db querier, name, claims string) (*table, error) {
	database, tableName := splitName(name)
	t := &table{name: quoteName(name), claims: quoteName(claims)}
	rows, err := db.QueryContext(ctx, `SELECT COLUMN_NAME, DATA_TYPE, COALESCE(CHARACTER_SET_NAME, ''),
		COALESCE(COLLATION_NAME, ''), COALESCE(CHARACTER_OCTET_LENGTH, 0), COALESCE(CHARACTER_MAXIMUM_LENGTH, 0)
		FROM information_schema.COLUMNS
		WHERE TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION`, database, tableName)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name, kind string
		var c column
		if err := rows.Scan(&name, &kind, &c.charset, &c.collation, &c.maxBytes, &c.maxChars); err != nil {
			return nil, err
		}
		kind = strings.ToLower(kind)
		lower := strings.ToLower(name)
		names = append(names, lower)
		switch lower {
		case "target":
			t.targetParam = c.pattern()
			t.targetCondition = "target = " + t.targetParam + " AND target = ?"
			if c.charset != "" {
				// Collations treat Low and low as equal, and a name with a blank at its end and one
				// without; the conversion to the charset replaces characters. Targets are exact.
				t.targetCondition = "target = " + t.targetParam + " AND CAST(CONVERT(target USING utf8mb4) AS BINARY) = CAST(? AS BINARY)"
			}
		case "stdout":
			t.stdout = c
		case "stderr":
			t.stderr = c
		}
		if lower == "priority" && isInteger(kind) {
			t.hasPrio = true
		}
		if !slices.Contains(ownedColumns, lower) {
			t.userColumns = append(t.userColumns, userColumn{name: name, isNumber: isNumeric(kind)})
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("table %s does not exist, or this user may not see it", t.name)
	}
	for _, want := range requiredColumns {
		if !slices.Contains(names, want) {
			return nil, fmt.Errorf("table %s has no column '%s'", t.name, want)
		}
	}
	t.hasCreated = slices.Contains(names, "time_created")
	if t.index, t.canListTargets, err = findIndex(ctx, db, database, tableName); err != nil || t.index == "" {
		return t, err
	}
	// information_schema also has indexes that are ignored or invisible, and no column marks them in
	// both MariaDB and MySQL.
	noRows, err := db.QueryContext(ctx, "SELECT id FROM "+t.name+t.indexHint()+" WHERE FALSE")
	if hasNumber(err, 1176) {
		t.index, t.canListTargets, err = "", false, nil
	} else if err == nil {
		err = noRows.Close()
	}
	return t, err
}

// findIndex finds an index that returns a target's waiting rows by id, and reports whether it
// begins with status. The primary key implicitly ends every index.
func findIndex(ctx context.Context, db querier, database, tableName string) (found string, startsWithStatus bool, err error) {
	rows, err := db.QueryContext(ctx, `SELECT INDEX_NAME, GROUP_CONCAT(LOWER(COLUMN_NAME) ORDER BY SEQ_IN_INDEX),
		COUNT(SUB_PART) FROM information_schema.STATISTICS
		WHERE TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ? GROUP BY INDEX_NAME`, database, tableName)
	if err != nil {
		return "", false, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, columns string
		var partial int
		if err := rows.Scan(&name, &columns, &partial); err != nil {
			return "", false, err
		}
		if partial == 0 && slices.Contains([]string{"status,target,id", "status,target", "target,status,id", "target,status"}, columns) {
			found, startsWithStatus = quotePart(name), columns[0] == 's'
		}
	}
	return found, startsWithStatus, rows.Err()
}

func isInteger(kind string) bool {
	return slices.Contains([]string{"tinyint", "smallint", "mediumint", "int", "bigint"}, kind)
}

func isNumeric(kind string) bool {
	return isInteger(kind) || slices.Contains([]string{"decimal", "float", "double", "year"}, kind)
}

// indexHint returns the hint that makes a statement use the index on targets; primaryKeyHint makes
// it use the primary key. Without a hint, the server may walk a covering index and lock every row
// on its way.
func (t *table) indexHint() string {
	if t.index == "" {
		return ""
	}
	return " FORCE INDEX (" + t.index + ")"
}

const primaryKeyHint = " FORCE INDEX (PRIMARY)"

// joinIDs returns a comma-separated list of ids.
func joinIDs(ids []int64) string {
	b := make([]byte, 0, 12*len(ids))
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "%d", id)
	}
	return string(b)
}

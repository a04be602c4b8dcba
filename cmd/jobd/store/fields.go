package store

import (
	"context"
	"database/sql"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-json"
)

// readFields reads the fields of locked rows: one JSON object per row, the id first, then the
// user's columns in the table's order. Numbers are numbers, NULL is null, and other values are
// strings; bytes that are not UTF-8 are in base64.
func (s *SQL) readFields(ctx context.Context, tx *sql.Tx, rows []Row) error {
	t := s.table()
	if len(t.userColumns) == 0 {
		for i := range rows {
			rows[i].Fields, _ = t.fieldsJSON(rows[i].ID, nil)
		}
		return nil
	}
	at := make(map[int64]int, len(rows))
	ids := make([]int64, len(rows))
	for i, row := range rows {
		at[row.ID], ids[i] = i, row.ID
	}
	columns := make([]string, 1, 1+len(t.userColumns))
	columns[0] = "id"
	for _, f := range t.userColumns {
		columns = append(columns, quotePart(f.name))
	}
	result, err := tx.QueryContext(ctx, "SELECT "+strings.Join(columns, ", ")+" FROM "+t.name+primaryKeyHint+" WHERE id IN ("+joinIDs(ids)+")")
	if err != nil {
		return err
	}
	defer result.Close()
	var id int64
	values := make([]sql.RawBytes, len(t.userColumns))
	targets := []any{&id}
	for i := range values {
		targets = append(targets, &values[i])
	}
	for result.Next() {
		if err := result.Scan(targets...); err != nil {
			return err
		}
		object, err := t.fieldsJSON(id, values)
		if err != nil {
			return err
		}
		rows[at[id]].Fields = object
	}
	return result.Err()
}

func (t *table) fieldsJSON(id int64, values []sql.RawBytes) ([]byte, error) {
	object := strconv.AppendInt([]byte(`{"id":`), id, 10)
	for i, f := range t.userColumns {
		name, err := json.Marshal(f.name)
		if err != nil {
			return nil, err
		}
		object = append(append(append(object, ','), name...), ':')
		value, err := encodeValue(values[i], f.isNumber)
		if err != nil {
			return nil, err
		}
		object = append(object, value...)
	}
	return append(object, '}'), nil
}

func encodeValue(value []byte, number bool) ([]byte, error) {
	switch {
	case value == nil:
		return []byte("null"), nil
	case number && json.Valid(value):
		return value, nil
	case utf8.Valid(value):
		return json.MarshalWithOption(string(value), json.DisableHTMLEscape())
	}
	return json.Marshal(base64.StdEncoding.EncodeToString(value))
}

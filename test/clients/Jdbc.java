// JDBC: batches with and without reWriteBatchedInserts, generated keys, server-side prepared statements, fetch sizes, binary transfer,
// savepoints, COPY, large values, upserts, isolation levels, metadata of the columns.
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.*;
import java.util.*;
import org.postgresql.PGConnection;

public class Jdbc {
	static Connection open(String options) throws SQLException {
		return DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE")
				+ "?user=" + System.getenv("PGUSER") + "&" + options);
	}

	static void section(String name) { System.out.println("# " + name); }

	static void show(Object... values) { System.out.println(Arrays.deepToString(values)); }

	static void error(SQLException e) { show(e.getSQLState(), e.getMessage().split("\n")[0]); }

	// The rows of a query, each value as the driver makes it.
	static void query(Connection c, String sql, Object... args) throws SQLException {
		try (PreparedStatement s = c.prepareStatement(sql)) {
			for (int i = 0; i < args.length; i++) s.setObject(i + 1, args[i]);
			try (ResultSet r = s.executeQuery()) { rows(r); }
		}
	}

	static void rows(ResultSet r) throws SQLException {
		while (r.next()) {
			List<Object> row = new ArrayList<>();
			for (int i = 1; i <= r.getMetaData().getColumnCount(); i++) {
				Object o = r.getObject(i);
				row.add(o instanceof byte[] ? HexFormat.of().formatHex((byte[]) o) : o instanceof java.sql.Array ? Arrays.deepToString((Object[]) ((java.sql.Array) o).getArray()) : o);
			}
			System.out.println(row);
		}
	}

	static boolean all(int[] counts) { return Arrays.stream(counts).allMatch(n -> n == 1 || n == Statement.SUCCESS_NO_INFO); }

	static void batches(Connection c, int tenant) throws SQLException {
		c.setAutoCommit(false);
		try (PreparedStatement s = c.prepareStatement("INSERT INTO item (tenant, sku, qty, price, attrs, tags) VALUES (?, ?, ?, ?, ?::jsonb, ?)")) {
			for (int i = 0; i < 3000; i++) {
				s.setInt(1, tenant); s.setString(2, String.format("s%04d", i)); s.setInt(3, i); s.setBigDecimal(4, new BigDecimal(i).movePointLeft(2));
				s.setString(5, "{\"i\": " + i + "}"); s.setArray(6, c.createArrayOf("text", new String[] {"a", null, "\u00e9" + i}));
				s.addBatch();
			}
			int[] counts = s.executeBatch();
			show(counts.length, all(counts));
		}
		c.commit();
		query(c, "SELECT count(*), sum(qty), sum(price), max(tags[3]), min(attrs->>'i') FROM item WHERE tenant = ?", tenant);
		try (PreparedStatement s = c.prepareStatement("INSERT INTO item (tenant, sku, qty) VALUES (?, ?, ?)")) {
			for (String sku : new String[] {"t1", "t2", "s0005", "t3"}) { s.setInt(1, tenant); s.setString(2, sku); s.setInt(3, 1); s.addBatch(); }
			s.executeBatch();
		} catch (BatchUpdateException e) {
			show(e.getSQLState(), e.getNextException() == null ? "" : e.getNextException().getMessage().split("\n")[0]);
		}
		c.rollback();
		query(c, "SELECT count(*) FROM item WHERE tenant = ? AND sku LIKE 't%'", tenant);
		try (PreparedStatement s = c.prepareStatement("UPDATE item SET qty = qty + ? WHERE tenant = ? AND sku = ?")) {
			for (int i = 0; i < 500; i++) { s.setInt(1, 1000); s.setInt(2, tenant); s.setString(3, String.format("s%04d", i * 7)); s.addBatch(); }
			show(Arrays.stream(s.executeBatch()).sum());
		}
		c.commit();
		try (PreparedStatement s = c.prepareStatement("INSERT INTO job (state) VALUES (?)", Statement.RETURN_GENERATED_KEYS)) {
			for (int i = 0; i < 5; i++) { s.setString(1, "batch " + i); s.addBatch(); }
			s.executeBatch();
			try (ResultSet r = s.getGeneratedKeys()) { rows(r); }
		}
		c.commit();
		c.setAutoCommit(true);
		query(c, "SELECT count(*), sum(qty) FROM item WHERE tenant = ?", tenant);
	}

	static void upserts(Connection c, String prefix) throws SQLException {
		String put = "INSERT INTO counter AS c (name, n) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET n = c.n + excluded.n";
		c.setAutoCommit(false);
		for (int round = 0; round < 3; round++) {
			try (PreparedStatement s = c.prepareStatement(put)) {
				for (int i = 0; i < 1000; i++) { s.setString(1, prefix + (i + round * 100)); s.setLong(2, i); s.addBatch(); }
				int[] counts = s.executeBatch();
				show(counts.length, all(counts));
			}
			c.commit();
		}
		query(c, "SELECT count(*), sum(n), max(n) FROM counter WHERE name LIKE ?", prefix + "%");
		// the same key twice in a batch: an error where the batch becomes one statement
		try (PreparedStatement s = c.prepareStatement(put)) {
			for (int i = 0; i < 2; i++) { s.setString(1, prefix + "twice"); s.setLong(2, 1); s.addBatch(); }
			show(all(s.executeBatch()));
		} catch (BatchUpdateException e) {
			show(e.getSQLState(), e.getNextException().getMessage().split("\n")[0]);
		}
		c.rollback();
		c.setAutoCommit(true);
		try (PreparedStatement s = c.prepareStatement(put + " RETURNING c.name, c.n")) {
			for (int i = 0; i < 8; i++) {
				s.setString(1, prefix + "one"); s.setLong(2, i);
				try (ResultSet r = s.executeQuery()) { rows(r); }
			}
		}
		try (PreparedStatement s = c.prepareStatement("INSERT INTO counter (name, n) VALUES (?, 0) ON CONFLICT DO NOTHING")) {
			for (String name : new String[] {"one", "two", "one"}) { s.setString(1, prefix + name); s.addBatch(); }
			show(Arrays.stream(s.executeBatch()).allMatch(n -> n == 1 || n == 0 || n == Statement.SUCCESS_NO_INFO));
		}
		query(c, "SELECT name, n FROM counter WHERE name IN (?, ?) ORDER BY name", prefix + "one", prefix + "two");
	}

	static void types(Connection c, Connection simple) throws SQLException {
		try (PreparedStatement s = c.prepareStatement("INSERT INTO typed (k, b, i2, i8, f4, f8, num, t, vc, by, d, ts, u, jb, ia, m) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?::jsonb, ?, ?::mood)")) {
			Object[] v = {1, true, (short) -3, 1L << 60, 1.5f, -2.25, new BigDecimal("123456789.000000001"), "t\u20ac", "vc", "bytes\0".getBytes(StandardCharsets.UTF_8),
				java.time.LocalDate.of(2024, 2, 29), java.time.LocalDateTime.of(2024, 1, 2, 3, 4, 5, 6000), new UUID(1, 2), "{\"a\": null}", c.createArrayOf("int4", new Integer[] {1, null}), "ok"};
			for (int i = 0; i < v.length; i++) s.setObject(i + 1, v[i]);
			show(s.executeUpdate());
		}
		for (Connection x : new Connection[] {c, simple})
			for (int i = 0; i < 3; i++) query(x, "SELECT k, b, i2, i8, f4, f8, num, t, vc, by, d, ts, u, jb::text, ia, m::text FROM typed WHERE k = ?", 1);
		byte[] large = new byte[3_000_000];
		new Random(1).nextBytes(large);
		try (PreparedStatement s = c.prepareStatement("INSERT INTO job (id, payload) VALUES (1000, ?)")) { s.setBytes(1, large); s.executeUpdate(); }
		try (Statement s = c.createStatement(); ResultSet r = s.executeQuery("SELECT payload FROM job WHERE id = 1000")) { r.next(); show(Arrays.equals(large, r.getBytes(1))); }
	}

	static void statements(Connection c) throws SQLException {
		section("prepared statements");
		try (PreparedStatement s = c.prepareStatement("SELECT sku, qty FROM item WHERE tenant = ? AND sku BETWEEN ? AND ? ORDER BY sku DESC LIMIT ?")) {
			for (int i = 0; i < 12; i++) {
				s.setInt(1, 1 + i % 3); s.setString(2, String.format("s%04d", i * 10)); s.setString(3, String.format("s%04d", i * 20)); s.setInt(4, i);
				try (ResultSet r = s.executeQuery()) {
					int n = 0;
					String last = null;
					for (; r.next(); n++) last = r.getString(1) + " " + r.getInt(2);
					show(n, last);
				}
			}
		}
		section("fetch size");
		c.setAutoCommit(false);
		try (PreparedStatement s = c.prepareStatement("SELECT sku, qty FROM item WHERE tenant = 2 ORDER BY tenant, sku")) {
			s.setFetchSize(64);
			try (ResultSet r = s.executeQuery(); Statement w = c.createStatement()) {
				int n = 0;
				long sum = 0;
				while (r.next()) {
					n++;
					sum += r.getInt(2);
					if (n == 100) show(w.executeUpdate("UPDATE item SET qty = 0 WHERE tenant = 2 AND sku > 's2000'"));
				}
				show(n, sum);
			}
		}
		c.rollback();
		c.setAutoCommit(true);
	}

	static void savepoints() throws SQLException {
		for (String mode : new String[] {"always", "never"})
			try (Connection x = open("autosave=" + mode); Statement s = x.createStatement()) {
				x.setAutoCommit(false);
				s.executeUpdate("INSERT INTO account (id, owner) VALUES (1, 'a')");
				Savepoint p = x.setSavepoint("p");
				for (String sql : new String[] {"INSERT INTO account (id, owner) VALUES (1, 'b')", "INSERT INTO account (id, owner) VALUES (2, 'c')"})
					try { show(s.executeUpdate(sql)); } catch (SQLException ex) { error(ex); }
				x.rollback(p);
				query(x, "SELECT id, owner FROM account ORDER BY id");
				x.rollback();
			}
	}

	static void copy(Connection c) throws Exception {
		StringBuilder data = new StringBuilder();
		for (int i = 0; i < 5000; i++) data.append(i).append("\towner\\t").append(i).append('\t').append(i).append(".5\t\\N\n");
		show(c.unwrap(PGConnection.class).getCopyAPI().copyIn("COPY account FROM STDIN", new ByteArrayInputStream(data.toString().getBytes(StandardCharsets.UTF_8))));
		ByteArrayOutputStream out = new ByteArrayOutputStream();
		show(c.unwrap(PGConnection.class).getCopyAPI().copyOut("COPY (SELECT * FROM account ORDER BY id) TO STDOUT (FORMAT binary)", out), out.size(), Arrays.hashCode(out.toByteArray()));
	}

	static void isolation(Connection c, Connection d) throws SQLException {
		for (int level : new int[] {Connection.TRANSACTION_REPEATABLE_READ, Connection.TRANSACTION_SERIALIZABLE}) {
			d.setAutoCommit(false);
			d.setTransactionIsolation(level);
			query(d, "SELECT balance FROM account WHERE id = 7");
			try (Statement s = c.createStatement(); Statement t = d.createStatement()) {
				s.executeUpdate("UPDATE account SET balance = balance + 1 WHERE id = 7");
				t.executeUpdate("UPDATE account SET balance = balance + 1 WHERE id = 7");
			} catch (SQLException ex) { error(ex); }
			d.rollback();
		}
		d.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
		d.setAutoCommit(true);
	}

	static void metadata(Connection c) throws SQLException {
		try (ResultSet r = c.getMetaData().getColumns(null, "public", "item", null)) {
			while (r.next()) show(r.getString("COLUMN_NAME"), r.getInt("DATA_TYPE"), r.getString("TYPE_NAME"), r.getInt("COLUMN_SIZE"), r.getInt("NULLABLE"), r.getString("COLUMN_DEF"));
		}
		try (ResultSet r = c.getMetaData().getPrimaryKeys(null, "public", "item")) {
			while (r.next()) show(r.getString("COLUMN_NAME"), r.getInt("KEY_SEQ"), r.getString("PK_NAME"));
		}
		try (ResultSet r = c.getMetaData().getIndexInfo(null, "public", "item", true, true)) {
			while (r.next()) show(r.getString("INDEX_NAME"), r.getString("COLUMN_NAME"), r.getBoolean("NON_UNIQUE"), r.getInt("ORDINAL_POSITION"));
		}
		try (Statement s = c.createStatement(); ResultSet r = s.executeQuery("SELECT id, owner, balance FROM account LIMIT 0")) {
			ResultSetMetaData m = r.getMetaData();
			for (int i = 1; i <= 3; i++) show(m.getColumnName(i), m.getTableName(i), m.isNullable(i), m.getPrecision(i), m.getScale(i), m.isAutoIncrement(i));
		}
	}

	public static void main(String[] args) throws Exception {
		try (Connection c = open("prepareThreshold=1&binaryTransfer=true"); Connection d = open("reWriteBatchedInserts=true");
				Connection e = open("preferQueryMode=simple")) {
			section("batches"); batches(c, 1);
			section("batches, rewritten"); batches(d, 2);
			section("batches, in simple query mode"); batches(e, 3);
			section("types"); types(c, e);
			statements(c);
			section("savepoints"); savepoints();
			section("COPY"); copy(c);
			section("isolation levels"); isolation(c, d);
			section("metadata"); metadata(c);
			section("upsert"); upserts(c, "a");
			section("upsert, rewritten"); upserts(d, "b");
			section("upsert, in simple query mode"); upserts(e, "c");
		}
	}
}

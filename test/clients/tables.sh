# The tables that the programs use, as statements: `tables heap` or `tables kvfdw`.
tables()
{
	table() # name columns key
	{
		if [ "$kind" = heap ]; then
			echo "CREATE TABLE $1 ($2, PRIMARY KEY ($3));"
		else
			echo "CREATE FOREIGN TABLE $1 ($2, PRIMARY KEY ($3)) SERVER kvfdw;"
		fi
	}
	local kind=$1
	[ "$kind" = heap ] || echo "CREATE EXTENSION kvfdw;"
	echo "CREATE SEQUENCE job_id; CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');"
	table account "id bigint NOT NULL, owner text NOT NULL, balance numeric(12,2) NOT NULL DEFAULT 0, note text, CONSTRAINT solvent CHECK (balance >= 0)" id
	table item "tenant int NOT NULL, sku text COLLATE \"C\" NOT NULL, qty int NOT NULL DEFAULT 0, price numeric(10,2), attrs jsonb, tags text[]" 'tenant, sku'
	table job "id bigint NOT NULL DEFAULT nextval('job_id'), state text NOT NULL DEFAULT 'new', payload bytea" id
	table counter "name text COLLATE \"C\" NOT NULL, n bigint NOT NULL" name
	table typed "k int NOT NULL, b boolean, i2 smallint, i8 bigint, f4 real, f8 double precision, num numeric, t text, vc varchar(20), ch char(5),
		by bytea, d date, ti time, ts timestamp, tz timestamptz, u uuid, j json, jb jsonb, ia int[], ta text[], m mood, iv interval, ip inet, r int4range" k
	table entry "id bigint NOT NULL, account_id bigint NOT NULL, amount numeric(12,2) NOT NULL, version int NOT NULL DEFAULT 1" id
}

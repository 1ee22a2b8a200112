# Promise: ALTER EXTENSION kvfdw UPDATE makes of an older version, in each form that it had, the very objects
# that CREATE EXTENSION makes, beside tables with rows, grants and views of the user's; a library that meets the
# objects of another version says so and shows nothing under a wrong name.  Views and functions have the columns of
# versions before, in their places.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no extension' if heap_only();
my $node = kv_cluster('update');
my $new = $node->safe_psql('postgres', q{SELECT default_version FROM pg_available_extensions WHERE name = 'kvfdw'});
sub query { my ($db, $sql) = @_; return $node->safe_psql($db, $sql); }
sub refused { my ($db, $sql) = @_; my (undef, undef, $err) = $node->psql($db, "\\set VERBOSITY verbose\n$sql"); return $err; }

# All that there is of the extension, in words.
my $objects = q{
	SELECT pg_describe_object(d.classid, d.objid, 0) || CASE d.classid
		WHEN 'pg_proc'::regclass THEN (SELECT pg_get_functiondef(oid) || coalesce(proacl::text, '-') FROM pg_proc WHERE oid = d.objid)
		WHEN 'pg_class'::regclass THEN (SELECT relkind::text || pg_get_viewdef(oid) || coalesce(relacl::text, '-') ||
			(SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = d.objid) FROM pg_class WHERE oid = d.objid)
		WHEN 'pg_foreign_data_wrapper'::regclass THEN (SELECT fdwhandler::regproc::text || ' ' || fdwvalidator::regproc::text || coalesce(fdwacl::text, '-') FROM pg_foreign_data_wrapper WHERE oid = d.objid)
		ELSE '' END || coalesce((SELECT string_agg(privtype::text || initprivs::text, ' ') FROM pg_init_privs p WHERE p.classoid = d.classid AND p.objoid = d.objid), '-')
	FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'kvfdw'
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' ORDER BY 1};
my $fresh = query('postgres', $objects);

# A database with a table, and with the extension as this SQL makes it.
sub database
{
	my ($name, $extension) = @_;
	query('postgres', "CREATE DATABASE $name");
	query($name, $extension . ';' . kv_table('t', 'k int, v text', 'k') . "INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 100) g");
	return;
}
sub updated
{
	my ($db, $from) = @_;
	query($db, 'ALTER EXTENSION kvfdw UPDATE');
	is(query($db, q{SELECT extversion FROM pg_extension WHERE extname = 'kvfdw'}), $new, "$from: updated");
	is(query($db, $objects), $fresh, 'its objects are those of CREATE EXTENSION');
	is(query($db, q{SELECT count(*), min(v) FROM t; SELECT rows FROM kvfdw_stat_tables WHERE relid = 't'::regclass; INSERT INTO t VALUES (101, 'w')}), "100|v1\n100", 'tables are as they were');
	return;
}

# ---- from each version that can be installed ----
my @old = split /\n/, query('postgres', qq{SELECT version FROM pg_available_extension_versions WHERE name = 'kvfdw' AND version <> '$new' ORDER BY 1});
ok(@old > 0, 'there are older versions');
for my $version (@old)
{
	my $db = 'from_' . $version =~ s/\W/_/gr;
	database($db, "CREATE EXTENSION kvfdw VERSION '$version'");
	is(query('postgres', qq{SELECT count(*) FROM pg_extension_update_paths('kvfdw') WHERE source = '$version' AND target = '$new' AND path IS NOT NULL}), '1', "there is a way from $version");
	updated($db, $version);
}

# ---- 0.1 as it was at first: other columns, a grant, a schema of its own, a view of the user's ----
query('postgres', 'CREATE ROLE watcher');
database('first', "CREATE SCHEMA s; CREATE EXTENSION kvfdw VERSION '0.1' SCHEMA s; SET search_path = public, s");
like(refused('first', 'TABLE s.kvfdw_stat_tables'), qr/ERROR:  55000: extension "kvfdw" of this database has another version.*HINT:  Run "ALTER EXTENSION kvfdw UPDATE"/s, 'old objects with a new library: refused');
is(query('first', q{SELECT count(*) > 5 FROM s.kvfdw_stat_io}), 't', 'those whose columns are the same are not');
query('first', q{GRANT EXECUTE ON FUNCTION s.kvfdw_stat_reset() TO watcher; CREATE VIEW public.mine AS SELECT kind, calls FROM s.kvfdw_stat_io; CREATE VIEW other AS SELECT relid, runs FROM s.kvfdw_stat_tables});
like(refused('first', 'ALTER EXTENSION kvfdw UPDATE'), qr/ERROR:.*cannot change name of view column/s, 'a view of the user\'s over columns that have moved: refused');
query('first', 'DROP VIEW other');
query('first', 'ALTER EXTENSION kvfdw UPDATE');
is(query('first', q{SELECT has_function_privilege('watcher', 's.kvfdw_stat_reset()', 'EXECUTE'), has_function_privilege('public', 's.kvfdw_stat_reset()', 'EXECUTE'), count(*) > 5 FROM mine}), 't|f|t', 'grants and views over the others are kept');
query('first', 'REVOKE EXECUTE ON FUNCTION s.kvfdw_stat_reset() FROM watcher; DROP VIEW mine; ALTER EXTENSION kvfdw SET SCHEMA public');
is(query('first', $objects), $fresh, 'else its objects are those of CREATE EXTENSION');

# ---- 0.1 as it was at last: what there is now, under that name ----
database('last', "CREATE EXTENSION kvfdw; UPDATE pg_extension SET extversion = '0.1' WHERE extname = 'kvfdw'; CREATE VIEW mine AS TABLE kvfdw_stat_tables");
updated('last', '0.1, last form');
is(query('last', 'SELECT count(*) FROM mine'), '1', 'with a view of the user\'s over it');

# ---- columns are only added, behind those that are there ----
my %now;
push @{$now{$_->[0]}}, $_->[1] for map { [ split /\|/ ] } split /\n/, query('postgres', q{
	SELECT name, col FROM (SELECT relname::text, attname || ' ' || format_type(atttypid, atttypmod), attnum FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid AND attnum > 0 WHERE relkind = 'v' AND relname LIKE 'kvfdw\_%'
	UNION ALL SELECT proname, name || ' ' || format_type(type, NULL), n FROM pg_proc, unnest(proargnames, proallargtypes, proargmodes) WITH ORDINALITY a (name, type, mode, n)
	WHERE proname LIKE 'kvfdw\_%' AND proname NOT LIKE 'kvfdw\_stat\_get\_%' AND mode IN ('o', 't')) s (name, col, n) ORDER BY name, n} =~ s/\n/ /gr);
my $file = "$FindBin::RealBin/../data/columns.txt";
my %before;
push @{$before{$_->[0]}}, $_->[1] for map { [ split / /, $_, 2 ] } split /\n/, slurp_file($file);
for my $name (sort keys %before)
{
	my $old = join ', ', @{$before{$name}};
	is(substr(join(', ', @{$now{$name} // []}), 0, length $old), $old, "$name begins with the columns that it had");
}
$node->stop;
done_testing();

# Promise: value files that were made and never became durable are not missed, even if the WAL
# names them, and their addresses are not given to others (I 13). A value file that a mark names
# stays (I 14). Addresses that a write buffer returns never look like damage. A missing value file
# is an error that names it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvVersions;

plan skip_all => 'heap has no chunks' if heap_only();
# without caches, and with so few descriptors that a session must close some of its value files
my $node = kv_cluster(
	'lost',
	'kvfdw.compact_workers' => 0, 'kvfdw.test_value_file_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600, restart_after_crash => 'off',
	'kvfdw.value_cache' => 0, 'kvfdw.range_cache' => 0, max_files_per_process => 70);
plan skip_all => 'needs fault injection' unless has_faults($node);
my $boot = 0;
my $value = 'SELECT g, rpad(md5(g::text), 4000, md5(g::text)) FROM generate_series';

sub chunks
{
	my ($t) = @_;
	my $oid = $node->safe_psql('postgres', "SELECT '$t'::regclass::oid");
	my @files = glob $node->data_dir . "/kvfdw/5/$oid/0*/*.c*.val";
	return @files;
}

# The number of the newest mark; 0: there is none.
sub marked
{
	my ($table) = @_;
	my $oid = $node->safe_psql('postgres', "SELECT '$table'::regclass::oid");
	my $mark = KvVersions->read(glob $node->data_dir . "/kvfdw/5/$oid/0*")->mark(0);
	return $mark ? $mark->{number} : 0;
}

# A table, and one of heap that gets what it gets.
sub create
{
	my ($t, $level, $shards) = @_;
	return $node->safe_psql('postgres', "CREATE TABLE h_$t (k int PRIMARY KEY, v text);" . kv_table($t, 'k int, v text', 'k', "wal '$level', shards '$shards'"));
}
sub both { my ($t, $sql) = @_; return $node->safe_psql('postgres', join ';', map { (my $s = $sql) =~ s/\bTABLE_\b/$_/g; $s } $t, "h_$t"); }

# The power is gone; so are the files that were not synced.
sub power_loss
{
	my (@lost) = @_;
	kill_all($node);
	unlink @lost;
	$boot++;
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'boot$boot'");
	$node->start;
	return;
}

sub same
{
	my ($t, $when) = @_;
	is(tables_differ($node, $t, "h_$t", 'k'), '', "$t, $when: heap's rows");
	is(answer($node, "SELECT file, problem FROM kvfdw_check('$t')"), '', "$t, $when: sound");
	# a value file that leaves the list goes a little later
	my ($listed, @files);
	my $agree = eval { wait_for('lists', sub { $listed = answer($node, "SELECT value_files FROM kvfdw_stat_tables WHERE relid = '$t'::regclass"); @files = chunks($t); return $listed eq @files; }) };
	ok($agree, "$t, $when: each chunk is in one list") or diag("listed: $listed, there: @files");
	return;
}

# A transaction writes to a table, does not end, and another's commit flushes what it has logged.
sub load_and_flush
{
	my ($t, $session, $rows) = @_;
	$session->query_safe($rows);
	# the buffer writer logs what it has written
	wait_for('values', sub { answer($node, "SELECT device_write_bytes FROM kvfdw_stat_tables WHERE relid = '$t'::regclass") > 200000 });
	$node->safe_psql('postgres', "CREATE TABLE other_$t (a int); INSERT INTO other_$t VALUES (1)");
	return;
}

# ---- keys: a load that is not committed, the records of which another's commit has flushed ----

for my $had_mark (1, 0)
{
	my $t = "keys_$had_mark";
	create($t, 'keys', 2);
	if ($had_mark)
	{
		both($t, "INSERT INTO TABLE_ $value(1, 20) g");
		$node->safe_psql('postgres', 'CHECKPOINT');
	}
	my %synced = map { $_ => 1 } chunks($t);
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	load_and_flush($t, $session, "BEGIN; INSERT INTO $t $value(1000, 1200) g");
	my @lost = grep { !$synced{$_} } chunks($t);
	cmp_ok(scalar @lost, '>=', 3, "$t: chunks that nothing has synced");
	power_loss(@lost);
	eval { $session->{run}->kill_kill };
	cmp_ok(scalar(grep { -e } @lost), '>', 0, "$t: the WAL names some of them");
	same($t, 'after a power loss');
	for my $i (1 .. 10) { both($t, "INSERT INTO TABLE_ $value(2000 + $i * 10, 2009 + $i * 10) g") }
	# the other shard
	both($t, "INSERT INTO TABLE_ $value(-1050, -1000) g");
	same($t, 'written to');
	$node->restart;
	same($t, 'started again');
	both($t, "INSERT INTO TABLE_ $value(3000, 3100) g; DELETE FROM TABLE_ WHERE k % 3 = 0");
	kill_all($node);
	$node->start;
	same($t, 'killed');
}

# ---- keys: redo comes to one shard before it meets what the WAL names of another ----

create('two', 'keys', 2);
$node->safe_psql('postgres', 'CHECKPOINT');
{
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query_safe("BEGIN; INSERT INTO two $value(1000, 1000) g");
	both('two', "INSERT INTO TABLE_ VALUES (-1000, 'of the other shard')");
	load_and_flush('two', $session, "INSERT INTO two $value(1001, 1200) g");
	my @lost = chunks('two');
	cmp_ok(scalar(keys %{ { map { m{([^/]+)\.c} => 1 } @lost } }), '==', 2, 'two: two shards have a volume each');
	power_loss(@lost);
	eval { $session->{run}->kill_kill };
	same('two', 'after a power loss');
	both('two', "INSERT INTO TABLE_ $value($_, $_ + 50) g") for -2050, 2000;
	$node->safe_psql('postgres', 'CHECKPOINT');
	same('two', 'written to');
	power_loss();
	same('two', 'after another power loss');
}

# ---- a mark names a value file that has no entry ----

for my $level (qw(none keys full))
{
	my $t = "dead_$level";
	create($t, $level, 1);
	both($t, "INSERT INTO TABLE_ VALUES (1, 'tiny'), (2, 'small')");
	for (1 .. 6)
	{
		my ($rc) = $node->psql('postgres', "SET kvfdw.fault = 'value_write:1:EIO'; INSERT INTO $t SELECT 1000, string_agg(md5(g::text), '') FROM generate_series(1, 12500) g");
		isnt($rc, 0, "$t: a large value could not be written");
	}
	my %named = map { $_ => -s } chunks($t);
	cmp_ok(scalar keys %named, '>=', 2, "$t: they have chunks of their own");
	$node->safe_psql('postgres', 'CHECKPOINT');
	my $mark = marked($t);
	cmp_ok($mark, '>', 0, "$t: it is marked");
	for my $when ('killed', 'killed again')
	{
		kill_all($node);
		$node->start;
		same($t, $when);
		# they go when a mark is durable that does not name them any more
		my $newer = marked($t) > $mark;
		my @gone = grep { !-e } sort keys %named;
		ok($newer || !@gone, "$t, $when: what the mark names is there") or diag("gone: @gone");
	}
	power_loss();
	same($t, 'after a power loss without another mark');
	both($t, "INSERT INTO TABLE_ $value(10, 200) g");
	kill_all($node);
	$node->start;
	same($t, 'written to and killed');
	$node->safe_psql('postgres', 'CHECKPOINT');
	power_loss();
	same($t, 'after another power loss');
}

# ---- a write buffer gives back what it had reserved ----

# A write buffer without a value, in a value file made for it, while an edit lists that; then the value file is
# closed and cut.
my $large = "repeat('large', 80000)";
create('back', 'none', 1);
both('back', "INSERT INTO TABLE_ $value(1, 14) g");
{
	my $freeze = psql_writer($node, "SET kvfdw.stop_points = 'flush_before_merge=wait'; SELECT kvfdw_flush('back');", 'freeze');
	stopped($node, 'flush_before_merge');
	both('back', 'DELETE FROM TABLE_ WHERE k = 1');
	is(scalar(my @made = chunks('back')), 2, 'back: a chunk for a slot');
	is(go_on($node, 'flush_before_merge', $freeze), "\n", 'back: the edit lists it');
	both('back', "INSERT INTO TABLE_ VALUES (100, $large)");
	is(scalar(grep { -s == 0 } chunks('back')), 1, 'back: it is cut');
}
kill_all($node);
$node->start;
same('back', 'killed');
$node->safe_psql('postgres', 'CHECKPOINT');
power_loss();
same('back', 'after a power loss');

create('beside', 'none', 1);
both('beside', "INSERT INTO TABLE_ $value(1, 1) g");
{
	my $check = psql_writer($node, "SET kvfdw.stop_points = 'check_value_files_listed=wait'; SELECT file, problem FROM kvfdw_check('beside');", 'check');
	stopped($node, 'check_value_files_listed');
	both('beside', "INSERT INTO TABLE_ VALUES (100, $large)");
	is(go_on($node, 'check_value_files_listed', $check), '', 'beside: a chunk that is cut meanwhile is no damage');
}

# ---- a value file that is not there ----

create('few', 'none', 1);
create('many', 'full', 4);
both('few', "INSERT INTO TABLE_ SELECT g, repeat(md5(g::text), 200) FROM generate_series(1, 100) g");
both('many', "INSERT INTO TABLE_ SELECT g * 4200000, repeat(md5(g::text), 200) FROM generate_series(-500, 500) g");
$node->safe_psql('postgres', "SELECT kvfdw_flush('few'), kvfdw_flush('many')");
{
	my $all = 'SELECT count(v), md5(string_agg(v, $$$$ ORDER BY k)) FROM';
	my ($few, $many) = map { answer($node, "$all h_$_") } qw(few many);
	cmp_ok(scalar(my @others = chunks('many')), '>=', 80, 'many: more chunks than descriptors');
	my ($file) = grep { -s > 60000 } chunks('few');
	my ($name) = $file =~ m{([^/]+)$};
	my $script = join "\n", '\set VERBOSITY verbose', "$all few;", "$all many;", "\\! mv $file $file.away", "$all few;", "$all few;", "$all many;", "\\! mv $file.away $file", "$all few;", '';
	my $out = outcome(psql_writer($node, $script, 'missing', 1));
	my @errors = $out =~ /ERROR:  ([^\n]*)/g;
	is(scalar @errors, 2, 'missing: each read of it is an error') or diag $out;
	like($_, qr/^58030: could not read file ".*\Q$name\E": No such file/, 'missing: that names it') for @errors;
	is(join(' ', $out =~ /^(\d+\|\w+)$/gm), "$few $many $many $few", 'missing: other tables are read on, and so is this one when it is back');
}
$node->stop('immediate');
done_testing();

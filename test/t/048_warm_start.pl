# Promise: kvfdw_prewarm() and a clean restart, of a standby too, leave a warm value cache; the file that says what was cached may be missing,
# damaged, another's or half used: never an error, never other values.  And kvfdw.memory is divided among what has no size.
use strict;
use warnings;
use File::Basename;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has other caches' if heap_only();
my $node = kv_primary('warm', 'kvfdw.memory' => '64MB', 'kvfdw.value_cache' => -1, 'kvfdw.recent_ring' => 0, 'kvfdw.write_buffers' => '4MB', 'kvfdw.flush_after' => '1h', log_min_messages => 'info');
my $file = $node->data_dir . '/kvfdw/warm';

is(join(' ', map { setting($node, "kvfdw.$_") } qw(memory value_cache recent_ring range_cache memtable_memory)), '64MB 24MB 0 16MB 16MB', 'parts of kvfdw.memory');
cmp_ok(answer($node, q{SELECT sum(allocated_size) FROM pg_shmem_allocations WHERE name LIKE 'kvfdw%'}), '<', 68 * 1024 * 1024, '... are what is reserved');
$node->append_conf('postgresql.conf', "work_mem = '5MB'");
$node->reload;
wait_for('the file to be read again', sub { setting($node, 'work_mem') eq '5MB' });
is(answer($node, q{SELECT string_agg(name, ' ') FROM pg_settings WHERE pending_restart}), '', 'and -1 stands for the same when the file is read again');

$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k') . q{
	INSERT INTO t SELECT g, repeat(md5(g::text), 128) FROM generate_series(1, 1000) g ORDER BY md5(g::text);
	SELECT kvfdw_flush('t')});
# All rows by key: are they right?  And what was read from the device.
sub rows_right { return answer($node, q{SELECT count(*), bool_and(v = repeat(md5(k::text), 128)) FROM generate_series(1, 1000) g, LATERAL (SELECT * FROM t WHERE k = g OFFSET 0) l}); }
sub reset_counts { return $node->safe_psql('postgres', 'SELECT kvfdw_stat_reset()'); }
sub device_reads { return answer($node, q{SELECT device_reads FROM kvfdw_stat_tables WHERE relid = 't'::regclass}); }
sub warmed { return wait_for('the file to be used', sub { !-e $file }); }

cmp_ok(answer($node, q{SELECT kvfdw_prewarm('t')}), '>=', 1000 * 4096, 'kvfdw_prewarm reads all of a table');
reset_counts();
is(rows_right() . ' ' . device_reads(), '1000|t 0', '... so that its values are in memory');
is(answer($node, q{SELECT kvfdw_prewarm('t') > 0}), 't', 'once more');

my $maintainer = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw maintainer'};
my $before = answer($node, $maintainer);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($before)");
wait_for('its end', sub { answer($node, $maintainer) ne $before });
ok(!-e $file, 'a maintainer that is ended while the server goes on notes nothing');
wait_for('another one', sub { answer($node, $maintainer) =~ /\d/ });

$node->stop;
cmp_ok(-s $file, '>=', 32 + 32 + 1000 * 8, 'a clean stop notes what is cached');
my $sound = slurp_file($file);
$node->start;
warmed();
reset_counts();
is(rows_right() . ' ' . device_reads(), '1000|t 0', 'after it they are in memory again');

# every second block of a table: read together with what lies between, which is not kept
$node->safe_psql('postgres', kv_table('u', 'k int, v text', 'k') . q{
	INSERT INTO u SELECT g, repeat(md5(g::text), 128) FROM generate_series(1, 1000) g; SELECT kvfdw_flush('u'); SELECT kvfdw_stat_reset();
	SELECT count(length(v)) FROM generate_series(2, 1000, 2) g, LATERAL (SELECT v FROM u WHERE k = g OFFSET 0) l});
sub reads_of_u { my ($from) = @_; return answer($node, "SELECT kvfdw_stat_reset(); SELECT count(length(v)) FROM generate_series($from, 1000, 2) g, LATERAL (SELECT v FROM u WHERE k = g OFFSET 0) l; SELECT device_reads FROM kvfdw_stat_tables WHERE relid = 'u'::regclass") =~ s/\s+/ /gr; }
my $noted = reads_of_u(2);
$node->stop;
$node->start;
warmed();
cmp_ok(answer($node, q{SELECT calls FROM kvfdw_stat_io WHERE kind = 'value read'}), '<', 300, 'blocks between those that were noted are read with them');
is("$noted, " . reads_of_u(2), ' 500 0,  500 0', '... which are in memory again');
like(reads_of_u(1), qr/^ 500 (?:4\d\d|500)$/, '... and only they');
$node->safe_psql('postgres', 'TRUNCATE u');

# of a table whose files a compaction has emptied
$node->safe_psql('postgres', q{INSERT INTO u SELECT g, repeat(md5(g::text), 100) FROM generate_series(1, 600) g; SELECT kvfdw_flush('u'), kvfdw_prewarm('u')});
$node->stop;
my $noted_u = slurp_file($file);
$node->start;
warmed();
$node->safe_psql('postgres', q{DELETE FROM u WHERE k % 2 = 0; SELECT kvfdw_compact('u', true); CHECKPOINT; CHECKPOINT});
wait_for('its files to go', sub { answer($node, q{SELECT obsolete_value_files FROM kvfdw_stat_tables WHERE relid = 'u'::regclass}) eq '0' });
collected($node);
$node->stop;
unlink $file;
append_to_file($file, $noted_u);
$node->start;
warmed();
is(answer($node, q{SELECT calls > 0, errors FROM kvfdw_stat_io WHERE kind = 'value read'}), 't|0', 'that a file has gone is no read that has failed');
is(answer($node, q{SELECT errors FROM kvfdw_stat_cache WHERE cache = 'device'}), '0', '... of the device');
$node->safe_psql('postgres', 'TRUNCATE u');

# what else may be there
my %damaged = (empty => '', cut => substr($sound, 0, -8), 'its head' => substr($sound, 0, 32), flipped => substr($sound, 0, 100) . chr(ord(substr($sound, 100, 1)) ^ 1) . substr($sound, 101));
my $body = substr($sound, 32);
# sums that are right
my $signed = sub { my ($head, $rest) = @_; return pack('L L Q Q L L', @$head, crc32c($rest)) . $rest; };
my ($magic, $version, $system, $mark, $nstores) = unpack('L L Q Q L', $sound);
$damaged{'of another server'} = $signed->([ $magic, $version, $system + 1, $mark, $nstores ], $body);
$damaged{'of a newer library'} = $signed->([ $magic, $version + 1, $system, $mark, $nstores ], $body);
$damaged{'of too many stores'} = $signed->([ $magic, $version, $system, $mark, $nstores + 1 ], $body);
$damaged{'of too many blocks'} = $signed->([ $magic, $version, $system, $mark, $nstores ], substr($body, 0, 24) . pack('Q', 1 << 40) . substr($body, 32));
$damaged{'of too many frames'} = $signed->([ $magic, $version, $system, $mark, $nstores ], substr($body, 0, 12) . pack('L', 1 << 30) . substr($body, 16));
my %harmless = (missing => undef, 'of another table' => $signed->([ $magic, $version, $system, $mark, $nstores ], pack('L', 4711) . substr($body, 4)),
	'of places that are nowhere' => $signed->([ $magic, $version, $system, $mark, $nstores ], substr($body, 0, 32) . join('', map { pack('Q', $_ * 12345 + (1 << 40)) } 1 .. (length($body) - 32) / 8)));
for my $what (sort keys %damaged, keys %harmless)
{
	my $bytes = exists $damaged{$what} ? $damaged{$what} : $harmless{$what};
	$node->stop('immediate') if $what eq 'cut';
	$node->stop if $what ne 'cut';
	unlink $file;
	append_to_file($file, $bytes) if defined $bytes;
	my $log = -s $node->logfile;
	$node->start;
	warmed();
	is(rows_right(), '1000|t', "a file that is $what: the rows are right");
	cmp_ok(device_reads(), '>=', 1000, '... and are read from the device') if $what eq 'missing';
	my $said = substr(slurp_file($node->logfile), $log);
	is(scalar(() = $said =~ /LOG:  ignoring file "kvfdw\/warm"/g), exists $damaged{$what} ? 1 : 0, '... and the log says what there is to say');
	unlike($said, qr/ERROR|WARNING|PANIC|signal/, '... and no more');
}

SKIP:
{
	skip 'not a test build (make FAULTS=1)', 2 unless has_faults($node);
	worker_stop_points($node, 'warm_read=wait');
	$node->restart;
	stopped($node, 'warm_read');
	$node->stop;
	ok(-e $file, 'a stop while the file is used leaves it');
	unlink $node->data_dir . '/kvfdw/waiting.warm_read';
	append_to_file($node->data_dir . '/kvfdw/continue.warm_read', '');
	$node->start;
	warmed();
	reset_counts();
	is(rows_right() . ' ' . device_reads(), '1000|t 0', '... to the next start');
}

SKIP:
{
	skip 'not a test build (make FAULTS=1)', 6 unless has_faults($node);
	unlink $node->data_dir . '/kvfdw/continue.warm_read';
	my $log = -s $node->logfile;
	worker_stop_points($node, 'warm_read=kill');
	$node->restart;
	ok(eval { wait_for('a crash that does not repeat', sub { substr(slurp_file($node->logfile), $log) =~ /was terminated by signal 9.*ignoring file "kvfdw\/warm": the server crashed while reading it/s }) }, 'a file with which the server crashes is used once') or diag $@;
	wait_for('the server', sub { answer($node, 'SELECT 1') eq '1' });
	worker_stop_points($node, '');
	is(join(' ', map { basename($_) } glob "$file*"), '', '... and has gone');
	is(rows_right(), '1000|t', '... the rows are right');
	$node->restart;
	warmed();
	ok(wait_for('its end', sub { !-e "$file.used" }), '... and the next file');
	reset_counts();
	is(rows_right() . ' ' . device_reads(), '1000|t 0', '... is used as ever');
	is(scalar(() = substr(slurp_file($node->logfile), $log) =~ /was terminated by signal/g), 1, '... after one crash');
}

# a standby
my $standby = kv_standby($node, 'standby', has_faults($node) ? ('kvfdw.stop_points' => "''") : ());
caught_up($node, $standby);
sub standby_reads { return answer($standby, q{SELECT count(*), bool_and(v = repeat(md5(k::text), 128)) FROM generate_series(1, 1000) g, LATERAL (SELECT * FROM t WHERE k = g OFFSET 0) l}); }
is(standby_reads(), '1000|t', 'a standby reads');
$file = $standby->data_dir . '/kvfdw/warm';
for my $what ('it stops and starts', 'again')
{
	$standby->stop;
	ok(-e $file, "$what: it notes what is cached");
	$standby->start;
	warmed();
	my $before = answer($standby, q{SELECT device_reads FROM kvfdw_stat_tables WHERE relid = 't'::regclass});
	is(standby_reads() . ' ' . (answer($standby, q{SELECT device_reads FROM kvfdw_stat_tables WHERE relid = 't'::regclass}) - $before), '1000|t 0', '... and has it in memory again');
}

SKIP:
{
	skip 'not a test build (make FAULTS=1)', 2 unless has_faults($node);
	unlink $standby->data_dir . '/kvfdw/continue.warm_read';
	worker_stop_points($standby, 'warm_read=wait');
	$standby->restart;
	stopped($standby, 'warm_read');
	$standby->promote;
	collected($standby);
	is(answer($standby, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'kvfdw warm'}), 1, 'a promotion starts no other worker');
	append_to_file($standby->data_dir . '/kvfdw/continue.warm_read', '');
	warmed();
	is(standby_reads(), '1000|t', '... and the rows are right');
}
$standby->stop;

# a value that is being written
SKIP:
{
	skip 'not a test build (make FAULTS=1)', 2 unless has_faults($node);
	$node->stop;
	$node = kv_cluster('extent', 'kvfdw.recent_ring' => 0, 'kvfdw.value_cache' => '4MB', 'kvfdw.write_buffer_size' => "'64kB'", 'kvfdw.buffer_units' => 3, 'kvfdw.flush_after' => '1h', map { ("kvfdw.test_$_" => 'off') } qw(splits compactions compact));
	$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k') . q{INSERT INTO t SELECT g, repeat(md5(g::text), 1900) FROM generate_series(1, 20) g; SELECT kvfdw_flush('t')});
	my $w = psql_writer($node, q{SET kvfdw.stop_points = 'large_value_reserved=wait'; INSERT INTO t SELECT 100, repeat(md5('x'), 1900)}, 'extent');
	stopped($node, 'large_value_reserved');
	$node->safe_psql('postgres', q{SELECT kvfdw_prewarm('t'); SELECT kvfdw_stat_reset()});
	go_on($node, 'large_value_reserved', $w);
	is(answer($node, q{SELECT v = repeat(md5('x'), 1900) FROM t WHERE k = 100}), 't', 'a value that was not written yet when its place was read is right');
	is(answer($node, q{SELECT errors FROM kvfdw_stat_cache WHERE cache = 'value cache'}), '0', '... and not looked for where it is not');
	$node->stop;
}
done_testing();

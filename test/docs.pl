#!/usr/bin/perl
# Promise: the documents name what is there.  Their links lead somewhere; source files and functions
# they name exist; test/README.md has every test, every module and every invariant; every stop point
# of the source is named by a test, so that none is met by chance alone; each public function has a contract;
# docs/reference/wait-events.md has every wait event, LWLock tranche and worker.  What is installed of the documents
# has no link that leads out of it, and the manual page has every option.
use strict;
use warnings;
use File::Basename qw(basename);
use File::Find;
use File::Temp;
use FindBin;
use lib "$FindBin::RealBin/perl";
use KvText;

# ---- links ----

my @documents = (glob('*.md docs/*.md docs/*/*.md bench/results/*.md test/*.md'));
my %text = map { $_ => slurp($_) } @documents;

# The anchors of a document, as they are made of its headings.
sub anchors
{
	my ($file) = @_;
	my $text = $text{$file} =~ s/^```.*?^```//gmsr;
	return map { my $a = lc; $a =~ s/[^\w\- ]//g; $a =~ s/ /-/g; $a } $text =~ /^#+ +(.*?) *$/gm;
}
my %anchors = map { my $d = $_; $d => { map { $_ => 1 } anchors($d) } } @documents;

sub target
{
	my ($from, $to) = @_;
	my @path = grep { length } split m{/}, ($from =~ s{[^/]*$}{}r) . $to;
	for (my $i = 1; $i < @path;) { if ($path[$i] eq '..' && $i > 0) { splice @path, --$i, 2 } else { $i++ } }
	return join '/', @path;
}

# The links of documents, of these texts, that lead to nothing below a directory.
sub dead
{
	my ($below, %text) = @_;
	my @dead;
	for my $d (sort keys %text)
	{
		for my $link ($text{$d} =~ /\]\(([^)\s]+)\)/g)
		{
			next if $link =~ /^https?:/;
			my ($to, $anchor) = $link =~ /^([^#]*)#?(.*)$/;
			my $file = length $to ? target($d, $to) : $d;
			push @dead, "$d: $link" if !-e "$below/$file" || (length $anchor && !$anchors{$file}{$anchor});
		}
	}
	return @dead;
}
ok_if_none('links lead somewhere', dead('.', %text));

# ---- what make install installs ----

my $installed = File::Temp->newdir;
my $said = `make -s install-documents DESTDIR=$installed docdir=/doc mandir=/man 2>&1`;
my $tree = "$installed/doc/extension/kvfdw";
my @installed = grep { -e "$tree/$_" } @documents;
ok_if_none('installed are the users\' documents', $said ? $said : (), grep { !-e "$tree/$_" && m{^(?:README|docs/(?:tutorial|how-to|reference|explanation)|bench)} } @documents);
ok_if_none('... whose links lead to installed ones', dead($tree, map { $_ => slurp("$tree/$_") } @installed));
my $manual = slurp("$installed/man/man1/kvfdw_upgrade.1") =~ s/\\-/-/gr;
ok_if_none('the manual page has each option', grep { $manual !~ /^\.B \Q$_\E$/m } slurp('bin/kvfdw_upgrade') =~ /^#   (--\w+) /gm);
my $lint = `command -v groff >/dev/null && groff -man -ww -z bin/kvfdw_upgrade.1 2>&1`;
ok_if_none('... and groff has no warning', $lint ? $lint : ());

# ---- source files ----

my (%source, %points);
my $all_source = '';
find({ no_chdir => 1, wanted => sub {
	return unless m{^src/(.*\.[ch])$};
	my $file = $1;
	$source{$file} = 1;
	$source{$file =~ s{^(?:engine|memcached)/}{}r} = 1;
	$source{basename($file)} = 1;
	my $text = slurp($_);
	$all_source .= $text;
	$points{$1} = $file while $text =~ /\bKV_STOP_POINT\s*\(\s*"(\w+)"/g;
} }, 'src');
%points or die "the source names no stop point\n";
my @missing;
my $architecture = $text{'docs/internals/architecture.md'} // die "there is no docs/internals/architecture.md\n";
for my $d (grep { exists $text{$_} } qw(docs/internals/architecture.md CONTRIBUTING.md test/README.md docs/internals/format.md))
{
	for my $name ($text{$d} =~ m{`(kv_\w+)(?:\(\))?`}g) { push @missing, "$d: $name" unless $all_source =~ /\b$name\b/ }
	for my $file ($text{$d} =~ m{`((?:\w+/)*\w+\.[ch])`}g) { push @missing, "$d: $file" unless $source{$file =~ s{^src/}{}r} || -e $file || $d =~ /format/ && $file !~ m{/} }
}
ok_if_none('source files and functions that documents name exist', @missing);

# ---- the table of modules ----

my ($order) = slurp('test/rooms.pl') =~ /^my \@rooms = qw\(([^)]*)\)/m or die "test/rooms.pl has no order\n";
my ($modules) = $architecture =~ /^## Modules\n(.*?)^## /ms or die "there is no table of modules\n";
my @rows = map { /^\| `(\w+)\/` \|/ ? $1 : /^\| `kvfdw\.c` \|/ ? 'module' : () } split /\n/, $modules;
ok_if_none('the table of modules is test/rooms.pl\'s order', "@rows" eq join(' ', reverse split ' ', $order) ? () : "@rows");

my @workers = $all_source =~ /kv_worker_(?:describe|start|define)\((?:&worker, |KV_WORKER_\w+, )?"(kvfdw \w[\w ]*)"/g;
@workers or die "the source starts no worker\n";
ok_if_none('each worker is among the processes', grep { $architecture !~ /^\| \Q$_\E \|/m } @workers);

# ---- wait events ----

my $watching = $text{'docs/reference/wait-events.md'} // die "there is no docs/reference/wait-events.md\n";
my %told = map { $_ => 1 } $watching =~ /^\| `(Kvfdw\w+)` \|/gm;
my %events = map { $_ => 1 } grep { $_ ne 'KvfdwStopPoint' } $all_source =~ /KV_WAIT_EVENT\(\w+, "(\w+)"\)/g;
%events or die "the source names no wait event\n";
ok_if_none('docs/reference/wait-events.md has each wait event', grep { !$told{$_} } sort keys %events);
ok_if_none('and no other', grep { !$events{$_} } sort keys %told);
my ($tranches) = $watching =~ /^LWLock tranches are (.*?)\./ms or die "docs/reference/wait-events.md names no tranche\n";
ok_if_none('... and each LWLock tranche', join(' ', sort $tranches =~ /`(\w+)`/g) eq join(' ', sort $all_source =~ /kv_new_tranche\("(\w+)"\)/g) ? () : $tranches);
ok_if_none('... and each worker', grep { $watching !~ /^\| `\Q$_\E` \|/m } @workers);

# ---- stop points ----

my @tests = glob('test/t/*.pl test/isolation/specs/*.spec test/pgtap/*.sql sql/*.sql');
my $all = join "\n", map { slurp($_) } @tests;
ok_if_none('each stop point is named by a test', map { "$points{$_}: $_" } grep { $all !~ /\b$_\b/ } sort keys %points);

my %skipped = map { $_ => 1 } $all_source =~ /\bkv_fault_skips\("(\w+)"\)/g;
my %skips = map { $_ => 1 } map { slurp($_) =~ /\bkvfdw\.skip'?\}? *=>? *'(\w+)'/g } @tests, glob('test/campaign/*.pl test/powercut/*.pl');
ok_if_none('each step that a test skips is one of the source', grep { !$skipped{$_} } sort keys %skips);

# ---- the index of tests ----

my (%rows, @twice);
for my $line (split /\n/, $text{'test/README.md'} =~ s/.*^## Which tests guard which module//msr)
{
	my ($what, $tests) = $line =~ /^\| *`?(.*?)`? *\| *(.*?) *\|$/ or next;
	push @twice, $what if exists $rows{$what} && $what !~ /^-/;
	$rows{$what} = [ $tests =~ /`([^`]+)`/g ];
}
my %files = map { (basename($_) =~ s/\.pl$//r) => $_ } grep { !/kvfdw--/ } @tests;
my %named = map { $_ => 1 } map { @$_ } values %rows, [ $text{'test/README.md'} =~ /^All modules meet in (.*?)\n\n/ms ? $1 =~ /`([^`]+)`/g : () ];
delete @named{qw(differential concurrent)};
for my $pattern (grep { /\*/ } keys %named)
{
	my $matches = join '.*', map { quotemeta } split /\*/, $pattern, -1;
	my @matching = grep { /^$matches$/ } keys %files or next;
	delete $named{$pattern};
	@named{@matching} = (1) x @matching;
}
ok_if_none('test/README.md names every test', grep { !$named{$_} } sort keys %files);
ok_if_none('and no other', grep { !$files{$_} } sort keys %named);

# a name or pattern that architecture.md has in a table of tests, or in a recipe
my @unknown;
for my $name ($architecture =~ /`(\d{2}[\d*]_[\w*]+|\w[\w*-]*\.spec|\w[\w*]*\.sql)`/g)
{
	my $matches = join '.*', map { quotemeta } split /\*/, $name, -1;
	push @unknown, $name unless grep { /^$matches$/ } keys %files;
}
ok_if_none('... and docs/internals/architecture.md none that is not there', @unknown);

my %room = map { m{^src/(?:engine/|memcached/)?(\w+)/\w+\.[ch]$} ? ($1 => 1) : () } glob('src/*/*.[ch] src/*/*/*.[ch]');
ok_if_none('each module has a test', grep { !@{$rows{$_} // []} } sort('module', 'engine', keys %room));
ok_if_none('each row is a module', @twice, grep { !/^I \d/ && !/^(module|engine|the tests|which module|invariant|---)$/ && !$room{$_} } sort keys %rows);

# ---- invariants ----

my %cited;
for my $name (sort keys %files)
{
	my $head = join '', slurp($files{$name}) =~ m{\A((?:(?:#|--).*\n|/\*.*?\*/\s*)*)}s;
	push @{$cited{"I $1"}}, $name while $head =~ /\bI (\d+)\b/g;
}
my @invariants = map { "I $_" } slurp('src/engine/engine.h') =~ /^ \*  I (\d+) /gm;
@invariants or die "engine.h has no invariants\n";
my @wrong;
for my $i (@invariants)
{
	my ($row, $heads) = map { join ' ', sort @{$_ // []} } $rows{$i}, $cited{$i};
	push @wrong, "$i: test/README.md has \"$row\", heads of tests say \"$heads\"" if $row ne $heads || $row eq '';
}
ok_if_none('each invariant has tests, and they say so', @wrong);

# ---- contracts ----

# A public function has a comment on its lines, or above it or the group that it stands in; the name
# of the file that it is in says nothing.
my @bare;
for my $header (sort(glob('src/*/*.h src/*/*/*.h')))
{
	my $said = 0;
	my $text = slurp($header);
	while ($text =~ /\G(?:(extern\b[^;{]*\([^;]*;[^\n]*\n)|([^\n]*\n))/g)
	{
		my ($function, $other) = ($1, $2);
		if (defined $function) { push @bare, "$header: " . $function =~ s/\(.*//sr if !$said && $function !~ m{/\*} }
		else { $said = $other =~ m{\*/\s*$} && $other !~ m{^/\* (?:-+ .* -+|[\w/]+\.c) \*/} if $other !~ /^extern/ }
	}
}
ok_if_none('each public function has a contract', @bare);

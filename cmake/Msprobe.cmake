# Settings every target shares, and the three kinds of target: msprobe_library, msprobe_test, msprobe_benchmark.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # the agent is a shared object
add_compile_options(-pthread)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # What the compiler lists as read is what ccache looks at, so that nothing is preprocessed twice; precompiled headers may
  # be kept; and a checkout uses what another one has compiled, wherever it lies.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

# Test programs are linked three hundred times, by LLD in a third of the time. What is shipped is linked by the compiler's own.
find_program(MSPROBE_LLD ld.lld)
set(test_linker "")
if(MSPROBE_LLD)
  set(test_linker -fuse-ld=lld)
endif()

# A test's own code hardly runs, and is compiled in three fifths of the time, beside the sanitizers in half of it.
set(test_optimization $<$<CONFIG:RelWithDebInfo>:-O0>)

if(MSPROBE_SANITIZE)
  # GCC's manual: its analysis of what is used before it is set is wrong beside the sanitizers.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=maybe-uninitialized>)
  add_compile_options(-fsanitize=${MSPROBE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MSPROBE_SANITIZE} ${test_linker})
  # A quarter of a position-independent test program would be relocations of what the sanitizers describe.
  add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
endif()

if(MSPROBE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link
                      -fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/tests/fuzz/undefined_not_ours.txt)
endif()

# Warnings are errors in our own sources; generated code does not link this.
add_library(msprobe_warnings INTERFACE)
target_compile_options(msprobe_warnings INTERFACE -Wall -Wextra -Werror)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # The iterators of RapidJSON 1.1 compare in a way that C++20 reads twice, to the same effect.
  target_compile_options(msprobe_warnings INTERFACE -Wthread-safety -Wno-ambiguous-reversed-operator)
endif()

# Most of a whole build would be spent on reading headers of others. So those that most sources include are read once, and
# sources of one room are compiled several at a time. Each source includes what it uses all the same: a build without
# MSPROBE_FAST_BUILD reads every header where it is named.
option(MSPROBE_FAST_BUILD "Precompile headers, and compile sources of a room together: a third of the time of a whole build" ON)
if(MSPROBE_FAST_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  if(NOT "${MSPROBE_SANITIZE}" STREQUAL "thread")
    set(MSPROBE_PRECOMPILE ON)
  endif()
  # GCC looks for memory to free from 128 MiB on, which took 6 to 10 percent of a compilation; most end before 1 GiB.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()

# msprobe_precompiled_headers(NAME [PROGRAMS] HEADERS ... [DEPS ...]): headers for msprobe_use_precompiled, of libraries or of
# programs, whose code is not as position independent.
function(msprobe_precompiled_headers name)
  if(NOT MSPROBE_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(ARG "PROGRAMS" "" "HEADERS;DEPS" ${ARGN})
  file(WRITE ${PROJECT_BINARY_DIR}/precompiled/${name}.cc "")
  if(ARG_PROGRAMS)
    add_executable(${name} ${PROJECT_BINARY_DIR}/precompiled/${name}.cc)
    target_compile_options(${name} PRIVATE ${test_optimization})
  else()
    add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/precompiled/${name}.cc)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

# msprobe_use_precompiled(TARGET NAME): TARGET is compiled with the headers of NAME, with the same options, and with what the
# libraries of these headers define.
function(msprobe_use_precompiled target name)
  if(TARGET ${name})
    target_precompile_headers(${target} REUSE_FROM ${name})
    target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:${name},COMPILE_DEFINITIONS>)
    target_compile_options(${target} PRIVATE $<TARGET_PROPERTY:${name},COMPILE_OPTIONS>)
  endif()
endfunction()

# msprobe_join_sources(TARGET COUNT): TARGET's sources are compiled COUNT at a time, so names that are a source's own (in its
# anonymous namespace) may not be those of another one. A source with options of its own is compiled alone, as is one with
# SKIP_UNITY_BUILD_INCLUSION. Unlike UNITY_BUILD's, what is compiled holds no absolute path: ccache finds what another checkout
# has compiled.
function(msprobe_join_sources target count)
  if(NOT MSPROBE_FAST_BUILD)
    return()
  endif()
  # A class of one source, with a member of that source's own: a joined source looks like a header to the warning.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  # At the end of the directory, when all sources have their properties.
  cmake_language(EVAL CODE "cmake_language(DEFER CALL msprobe_write_joined_sources [[${target}]] [[${count}]])")
endfunction()

function(msprobe_write_joined_sources target count)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/joined)
  set(includes "")
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(source MATCHES "\\.cc$" AND NOT options AND NOT alone)
      cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
      file(RELATIVE_PATH path ${folder} ${path})
      list(APPEND includes "#include \"${path}\"")
      set_source_files_properties(${source} PROPERTIES HEADER_FILE_ONLY ON)
    endif()
  endforeach()
  set(piece 0)
  while(includes)
    list(SUBLIST includes 0 ${count} some)
    list(JOIN some "\n" content)
    file(CONFIGURE OUTPUT ${folder}/${target}_${piece}.cc CONTENT "${content}\n" @ONLY)
    target_sources(${target} PRIVATE ${folder}/${target}_${piece}.cc)
    list(REMOVE_ITEM includes ${some})
    math(EXPR piece "${piece} + 1")
  endwhile()
endfunction()

# msprobe_library(NAME SOURCES ... [DEPS ...] [PRECOMPILED HEADERS|OFF] [JOIN COUNT]): a static library of one room; headers are
# included from the root. JOIN: see msprobe_join_sources.
function(msprobe_library name)
  cmake_parse_arguments(ARG "" "PRECOMPILED;JOIN" "SOURCES;DEPS" ${ARGN})
  if(NOT DEFINED ARG_PRECOMPILED)
    set(ARG_PRECOMPILED msprobe_headers)
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE msprobe_warnings)
  msprobe_use_precompiled(${name} ${ARG_PRECOMPILED})
  if(ARG_JOIN)
    msprobe_join_sources(${name} ${ARG_JOIN})
  endif()
endfunction()

# msprobe_test(NAME SOURCES ... [DEPS ...] [PRECOMPILED HEADERS|OFF]): a GoogleTest binary, found by ctest under its name.
function(msprobe_test name)
  if(NOT MSPROBE_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "PRECOMPILED" "SOURCES;DEPS" ${ARGN})
  if(NOT DEFINED ARG_PRECOMPILED)
    set(ARG_PRECOMPILED msprobe_test_headers)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main msprobe_warnings)
  # GCC 12 warns of strings' memory where it has inlined much of them, and is wrong.
  target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-error=array-bounds> ${test_optimization})
  msprobe_use_precompiled(${name} ${ARG_PRECOMPILED})
  target_link_options(${name} PRIVATE ${test_linker})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
endfunction()

# msprobe_benchmark(NAME SOURCES ... [DEPS ...]): a Google Benchmark binary, built by the target msprobe_benchmarks alone.
add_custom_target(msprobe_benchmarks)
function(msprobe_benchmark name)
  if(NOT MSPROBE_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/benchmarks EXCLUDE_FROM_ALL ON)
  add_dependencies(msprobe_benchmarks ${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} benchmark::benchmark benchmark::benchmark_main msprobe_warnings)
endfunction()

# cmake -DFROM=FILE -DTO=FILE -P embed_text.cmake: a file's text as one C++ string literal.
file(READ "${FROM}" text)
if(text STREQUAL "")
  file(WRITE "${TO}" "\"\"\n")
else()
  file(WRITE "${TO}" "R\"embedded(${text})embedded\"\n")
endif()
